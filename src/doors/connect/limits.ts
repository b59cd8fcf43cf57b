/** Every bound of the connect door, named with its unit. */
export const CONNECT_LIMITS = {
  /** Between the connection and its hello, and the hello's size. */
  helloMs: 5_000,
  helloBytesMax: 4_096,
  /** Connections that have not said hello; a server has room for four times as many at least. */
  newcomersMax: 2_500,
  /** One message of a client. */
  messageBytesMax: 1_048_576,
  /** Silence after which a ping is sent, and after which the connection is given up. */
  pingMs: 10_000,
  deadMs: 25_000,
  /** How long an old connection has to show that it is alive when a new one claims its place. */
  probeMs: 1_500,
  /** What may be on its way to a client: replies, and events before the next of them wait. */
  bufferedBytesMax: 1_048_576,
  /** How long a client may take to read that. */
  slowMs: 25_000,
  /** Requests of one client that wait for their reply. */
  requestsMax: 256,
  /** How often silence is looked for. */
  watchMs: 1_000,
} as const

export type ConnectLimits = { readonly [Name in keyof typeof CONNECT_LIMITS]: number }
