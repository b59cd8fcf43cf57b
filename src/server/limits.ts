/** Every bound of the server, in one place, each named with its unit. */
export const SERVER_LIMITS = {
  /** What a body may hold besides the input: names, options, labels. */
  bodyBytesExtra: 65_536,
  /** A request's line and headers together, and how many headers. */
  headerBytesMax: 16_384,
  headersMax: 100,
  /** How long a request's headers, and the whole of it, may take to arrive. */
  headersMs: 10_000,
  requestMs: 60_000,
  /** How long an idle connection is kept. */
  keepAliveMs: 60_000,
  connectionsMax: 10_000,
  /** Between two signs of life on a stream. */
  heartbeatMs: 15_000,
  /** How often the store is looked at, and how long it may take to answer. */
  storeCheckMs: 5_000,
  storeAnswerMs: 2_000,
  /** After the drain: how long last answers may take to leave. */
  farewellMs: 500,
} as const
