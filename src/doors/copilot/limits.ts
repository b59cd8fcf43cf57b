/** Every bound of the Copilot door, named with its unit. */
export const COPILOT_LIMITS = {
  /** Between the connection and its `connect`, and the size of what is said before. */
  connectMs: 5_000,
  connectBytesMax: 16_384,
  /** Connections that have not shown a token; the oldest of them goes. */
  newcomersMax: 256,
  /** One message of a client: an image in it is base64. */
  messageBytesMax: 8_388_608,
  /** What all clients together may have sent of messages that are not complete. */
  partialTotalBytesMax: 134_217_728,
  /** Requests of one client that wait for their reply, and of the server to it. */
  requestsMax: 256,
  /** Sessions that one connection is attached to. */
  sessionsMax: 256,
  /** Tools that a client registers with one session. */
  toolsMax: 64,
  /** How long a request waits for a session whose owner is gone, and between two looks for it. */
  ownerMs: 30_000,
  ownerAgainMs: 100,
  /** Silence after which a ping is sent, and after which the connection is given up. */
  pingMs: 10_000,
  deadMs: 25_000,
  /** How often silence is looked for. */
  watchMs: 1_000,
  /** What may be on its way to a client: beyond it, events wait. */
  bufferedBytesMax: 1_048_576,
  /** How long a client may take to read that. */
  slowMs: 25_000,
  /** What one answer has of a session's log: its newest events. */
  historyEventsMax: 10_000,
  historyCharsMax: 8_388_608,
  /** Sessions in one list. */
  listMax: 1_000,
} as const

export type CopilotLimits = { readonly [Name in keyof typeof COPILOT_LIMITS]: number }
