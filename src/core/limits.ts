/** Every bound of the core, in one place, each named with its unit. */
import { HoldfastError } from './errors.ts'

/**
 * Bounds of what a session's state may hold. Fixed, so that a log folds to the same state
 * everywhere.
 */
export const STATE_LIMITS = {
  /** A session key, in UTF-8 bytes. */
  keyBytesMax: 512,
  /** An explicit session id, in characters. */
  idCharsMax: 128,
  /** An `Idempotency-Key`, in characters. */
  idempotencyKeyCharsMax: 255,
  /** Labels on one session, and the characters of a label's name or value. */
  labelsMax: 32,
  labelCharsMax: 256,
  /** Asks that wait for an answer, and attachments, per session. */
  asksMax: 64,
  attachmentsMax: 1_024,
  /** Of them, those that came in by links. */
  guestsMax: 512,
  /** Ended attachments whose reason is remembered, and links, per session. */
  tombstonesMax: 32,
  linksMax: 64,
  /** Principals and groups that one session is shared with. */
  sharesMax: 64,
  /** Attachments made by one link. */
  attachmentsPerLinkMax: 64,
  /** Uses of one link whose watchers may come back without another one: the newest. */
  linkUsesMax: 64,
  /** Followers of one principal that answer, on one node, as JSON: those that are alike are one. */
  answererCharsMax: 65_536,
  /** `answerGraceMs` of an attachment that was lost under 0.1.0. */
  answerGraceMs: 30_000,
  /** Inputs that were collected in one queued turn, in characters. */
  collectedCharsMax: 1_048_576,
  /** The backend's own session id, in characters. */
  backendCharsMax: 512,
  /** The messages that a session begins with, in characters. */
  originCharsMax: 4_194_304,
  /** A setting, the items of one that is a list, and instructions for an agent, in characters. */
  settingCharsMax: 1_024,
  settingItemsMax: 32,
  instructionsCharsMax: 65_536,
  /** What an agent was allowed for the whole session, as JSON text. */
  grantsCharsMax: 65_536,
  /** An agent's plan or commands as JSON text: larger ones are in the log only. */
  listCharsMax: 32_768,
  /** The name of an image or a file, and its media type, in characters. */
  partNameCharsMax: 255,
  mediaTypeCharsMax: 127,
} as const

/** Bounds of behaviour: each can be set when Holdfast is opened. */
export const LIMITS = {
  /** One request's input, as JSON text. */
  inputBytesMax: 1_048_576,
  /** Parts of one input; the bytes of one image or file, and of all of one input together. */
  partsMax: 32,
  partBytesMax: 5_242_880,
  partsBytesMax: 20_971_520,
  /** The bytes of all images and files that one session keeps. */
  storedPartsBytesMax: 268_435_456,
  /** What one turn may answer before it has recorded a message, in characters. */
  replyCharsMax: 4_194_304,
  /** How often what a running turn says is recorded, so that it outlives a crash. */
  checkpointMs: 1_000,
  /** One activity of a turn as JSON text, and how many of one turn are recorded. */
  activityCharsMax: 65_536,
  activitiesMax: 1_000,
  /** Turns of one session that wait, admitted or not. */
  queuedTurnsMax: 256,
  /** Their inputs together, as JSON text. */
  queuedCharsMax: 16_777_216,
  /** How long a request waits for the lane before it is refused with 429. */
  waitMs: 30_000,
  waitMsMax: 600_000,
  /** How long a request's key is known after its admission, and how many of one session. */
  idempotencyMs: 86_400_000,
  idempotencyKeysMax: 10_000,
  /** How long one turn may run before it is stopped and fails with `turn_timeout`. */
  turnMs: 3_600_000,
  /** Between asking a runner to stop and going on without it. */
  cancelGraceMs: 5_000,
  /** How long runners may take to end what they keep, when Holdfast is closed. */
  runnerCloseMs: 10_000,
  /** How long an ask waits for an answer, unless it says otherwise. */
  askMs: 300_000,
  askMsMax: 86_400_000,
  /** An ask's question, options and answer together, as JSON text. */
  askBytesMax: 65_536,
  /** How long a lost attachment may come back: `early` and `resume`, and `reopen`. */
  graceMs: 30_000,
  reopenGraceMs: 600_000,
  graceMsMax: 86_400_000,
  /** How long a lost attachment still counts as a client that answers asks. */
  answerGraceMs: 30_000,
  /**
   * Watchers of one session, and of them those by one link; half of them by all links.
   */
  watchersMax: 1_024,
  watchersPerLinkMax: 64,
  /** How long an idle session lives under `reopen`. */
  ttlMs: 30 * 86_400_000,
  ttlMsMax: 3_650 * 86_400_000,
  /** How long a closed session's log is kept before it is erased; the id stays refused. */
  retainMs: 30 * 86_400_000,
  /** How long records of the audit are kept, and the addresses in them. */
  auditMs: 365 * 86_400_000,
  auditAddressMs: 30 * 86_400_000,
  /**
   * Events between two snapshots of a session, or as many as are as long as a snapshot: what
   * opening it has to read at most.
   */
  snapshotEvery: 200,
  /** Or so many characters of events. */
  snapshotChars: 4_194_304,
  /** Sessions held in memory although nothing happens in them. */
  idleSessionsMax: 2_000,
  /** Recent events held in memory for the followers of one session. */
  tailItemsMax: 512,
  /** Events read from the store at once. */
  pageEvents: 256,
  /** Appends in one group commit, and group commits under way. */
  commitAppendsMax: 64,
  commitsInFlightMax: 1,
  /** A commit that takes as long is reported. */
  slowCommitMs: 1_000,
  /** Sessions on one page of a list. */
  listMax: 500,
  /** How often expired sessions are closed, old ones erased and stranded ones picked up. */
  sweepMs: 30_000,
  /**
   * A node's lease: others take over its sessions when it ends. Infinity where only one node can
   * be.
   */
  leaseMs: Number.POSITIVE_INFINITY,
} as const

export type Limits = { readonly [Name in keyof typeof LIMITS]: number }

/** A limit of so much, or more, is none: about 140,000 years, counted from now a safe integer. */
export const LIMIT_MAX = 2 ** 52

/** With none of these nothing is ever read, listed or committed. */
const AT_LEAST_ONE: readonly string[] = [
  'pageEvents',
  'listMax',
  'commitAppendsMax',
  'commitsInFlightMax',
] satisfies readonly (keyof Limits)[]

/**
 * The core's limits. All are whole and finite: times and counts that are made of them get into
 * logs and stores, which hold neither an infinity nor a fraction.
 */
export function coreLimits(given: {
  readonly [Name in keyof Limits]?: number | undefined
}): Limits {
  const limits = Object.entries(limitsFrom(LIMITS, given, 'limits')).map(([name, value]) => {
    if (value === 0 && AT_LEAST_ONE.includes(name)) {
      const field = `limits.${name}`
      throw new HoldfastError('invalid_field', `${field} must be at least 1`, { field })
    }
    return [name, Math.min(Math.ceil(value), LIMIT_MAX)]
  })
  return Object.fromEntries(limits) as Limits
}

/**
 * A table of limits with those that were given in their places. Throws at a name that the table
 * does not have: a limit that no code reads must not seem to be set.
 */
export function limitsFrom<Table extends Readonly<Record<string, number>>>(
  table: Table,
  given: { readonly [Name in keyof Table]?: number | undefined },
  where: string,
): { readonly [Name in keyof Table]: number } {
  const limits: Record<string, number> = { ...table }
  for (const [name, value] of Object.entries(given)) {
    const field = `${where}.${name}`
    if (!Object.hasOwn(table, name)) {
      throw new HoldfastError('invalid_field', `there is no limit ${field}`, { field })
    }
    if (value === undefined) continue
    if (typeof value !== 'number' || !(value >= 0)) {
      const problem = `${field} must be a number, 0 or more, not ${String(value)}`
      throw new HoldfastError('invalid_field', problem, { field })
    }
    limits[name] = value
  }
  return limits as { readonly [Name in keyof Table]: number }
}
