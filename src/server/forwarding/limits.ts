/** Limits of forwarding, each named with its unit. */
export const FORWARD_LIMITS = {
  /** How long a request waits for a session whose owner is gone or about to stop. */
  patienceMs: 30_000,
  /** Between two attempts to find the owner: doubled from the first to the second. */
  againMs: 50,
  againMsMax: 500,
  /** To connect to another node. */
  connectMs: 3_000,
  /** Between two checks whether a node that has not answered yet is alive. */
  aliveMs: 1_000,
  /** Idle connections to one other node. */
  idleSocketsMax: 64,
  /** Messages of a client before its owner is reached: it should wait for the welcome. */
  messagesWaitingMax: 16,
  /**
   * How long a node that stops goes on forwarding, so that load balancers and other nodes notice.
   * Never longer than its drain time.
   */
  lingerMs: 3_000,
  /** How long an owner or an address from the store is used again, and how many are kept. */
  cacheMs: 1_000,
  cachedMax: 10_000,
} as const
