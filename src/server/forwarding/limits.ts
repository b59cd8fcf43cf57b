/** Bounds of passing requests on, each named with its unit. */
export const FORWARD_LIMITS = {
  /** How long a request waits for its session to be free of a node that is gone or about to be. */
  patienceMs: 30_000,
  /** Between two looks at who owns the session now: doubled from the first to the second. */
  againMs: 50,
  againMsMax: 500,
  /** To reach another node. */
  connectMs: 3_000,
  /** How often it is looked whether a node that has not answered yet still lives. */
  aliveMs: 1_000,
  /** Idle connections to one other node. */
  idleSocketsMax: 64,
  /** What a client may say before its owner is reached: it should wait for the welcome. */
  messagesWaitingMax: 16,
  /**
   * How long a node that stops goes on to pass on what comes, so that load balancers and other
   * nodes notice. Never longer than it may drain.
   */
  lingerMs: 3_000,
  /** How long it is remembered who owned a session, and of how many. */
  ownerMs: 2_000,
  ownersMax: 10_000,
} as const
