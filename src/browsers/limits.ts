/** Every limit of browsers, named with its unit. */
export const BROWSER_LIMITS = {
  /** From the start of a browser to its first answer. */
  startMs: 30_000,
  /** How long a browser without sessions is kept. */
  idleMs: 60_000,
  /** Between two health checks, and how long the answer may take. */
  healthMs: 15_000,
  healthAnswerMs: 10_000,
  /** The answer comes after all data in flight: for this much it has a millisecond more. */
  readBytesPerMs: 2_048,
  /** Browsers that run at once. */
  runningMax: 8,
  /** Memory of one browser, and how often it is measured; on Linux only. */
  memoryBytesMax: 8_589_934_592,
  memoryMs: 5_000,
  /** Disk of one browser: its profile, with all that pages store and download. */
  diskBytesMax: 17_179_869_184,
  diskMs: 5_000,
  /** One message of the browser, which fits into a string. A larger one is dropped. */
  messageBytesMax: 536_000_000,
  /** Data that a browser at an address has not read: with more, it does not read at all. */
  unreadBytesMax: 268_435_456,
  /** Connections of its pages, if they go through the egress proxy, and the time to make one. */
  egressConnectionsMax: 2_048,
  egressConnectMs: 30_000,
  /** What is kept of its standard error, for the reason of its end. */
  lastWordsChars: 2_048,
} as const

export type BrowserLimits = { readonly [Name in keyof typeof BROWSER_LIMITS]: number }
