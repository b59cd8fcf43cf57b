/** Every bound on the browsers that are started, named with its unit. */
export const BROWSER_LIMITS = {
  /** From the start of a browser to its first answer. */
  startMs: 30_000,
  /** How long a browser that nobody uses is kept. */
  idleMs: 60_000,
  /** Between two looks at its health, and how long it may take to answer. */
  healthMs: 15_000,
  healthAnswerMs: 10_000,
  /** It answers when it has read what came before: for so much it has a millisecond more. */
  readBytesPerMs: 2_048,
  /** Browsers that run at once. */
  runningMax: 8,
  /** What one may take of the memory, and how often that is looked at. Only Linux tells. */
  memoryBytesMax: 8_589_934_592,
  memoryMs: 5_000,
  /** One message of the browser, short enough to be a text. A larger one is lost. */
  messageBytesMax: 536_000_000,
  /** What may wait to be read at an address: more is only there if nobody reads at all. */
  unreadBytesMax: 268_435_456,
  /** What is kept of what it said last, to tell why it ended. */
  lastWordsChars: 2_048,
} as const

export type BrowserLimits = { readonly [Name in keyof typeof BROWSER_LIMITS]: number }
