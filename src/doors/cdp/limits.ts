/** Every bound of the CDP door, named with its unit. */
export const CDP_LIMITS = {
  /** One message of a client, and what becomes of it. After 100 MiB Chromium reads no more. */
  messageBytesMax: 100_000_000,
  /** What may be on its way to a browser, and after how much it is asked whether it has that. */
  underwayBytesMax: 2_097_152,
  signBytes: 524_288,
  /** A command whose params are no larger passes however many bytes wait for their replies. */
  smallBytes: 4_096,
  /** Values in a command: a browser that reads 30 million of them is deaf for five seconds. */
  valuesMax: 4_194_304,
  /** And in one that somebody here looks at; the others pass unread. */
  readValuesMax: 262_144,
  /** A message that is not as plain as every client's are, which has to be taken apart. */
  oddBytesMax: 1_048_576,
  /** Commands of one client that wait for their reply, and so many more about targets. */
  pendingMax: 16_384,
  pendingTargetMax: 1_024,
  pendingBytesMax: 268_435_456,
  /** Sessions of one client; pages, contexts and clients of one browser session. */
  sessionsMax: 4_096,
  targetsMax: 512,
  /** Pages that one browser session has the browser open at once; more wait for their turn. */
  openingMax: 8,
  contextsMax: 256,
  clientsMax: 1_024,
  /** What a command may say that makes a page or a context. */
  makingCharsMax: 262_144,
  /** Browser sessions, and clients of all of them, on one browser that is shared. */
  browserSessionsMax: 256,
  browserClientsMax: 2_048,
  /** What may wait to be read by a client when the next message comes. */
  unreadBytesMax: 134_217_728,
  /** And by all clients of a server together: who has left the most unread goes first. */
  unreadTotalBytesMax: 1_073_741_824,
  /** Silence after which a client is pinged, and after which it is given up. */
  pingMs: 15_000,
  deadMs: 40_000,
  /** After how long without its connection a client counts as absent. */
  absentMs: 2_000,
  /** What an absent client has missed so far, and what a present one has not confirmed. */
  heldBytesMax: 67_108_864,
  /** And all of them together: who has missed the most goes first. */
  heldTotalBytesMax: 1_073_741_824,
  /** One recording, and what of it may wait to be written. */
  recordBytesMax: 1_073_741_824,
  recordUnwrittenBytesMax: 16_777_216,
  /** Of a larger message it is written down what it is, not what it says. */
  recordMessageBytesMax: 4_194_304,
  /** How long a browser session that nobody uses is kept, unless it says otherwise. */
  idleSessionMs: 3_600_000,
} as const

export type CdpLimits = { readonly [Name in keyof typeof CDP_LIMITS]: number }
