/**
 * Retention: which closed sessions are erased by themselves. The first rule whose conditions a
 * session meets decides about it; without one the limit `retainMs` does.
 *
 * Sessions are judged from the newest to the oldest, by their creation. So a rule that keeps some
 * number of sessions, or of bytes, keeps the newest, and what it has kept so far is all that has to
 * be remembered from one session to the next.
 */
import { HoldfastError, invalid } from './errors.ts'
import { LIMIT_MAX } from './limits.ts'
import type { SessionRow, Store } from './store.ts'

/** Which sessions a rule is about. Each that is given must hold, by one of its words. */
export const RETENTION_CONDITIONS = {
  labels: 'labels, as `NAME:VALUE`, or `NAME:*` for any value',
  agents: 'names of agents',
  principals: 'ids of principals that the sessions belong to, or `@` and the name of a group',
} as const

/** How long a rule keeps sessions: those beyond any of these go. */
export const RETENTION_BOUNDS = {
  ageMs: 'how long a session is kept after it was closed, in milliseconds',
  count: 'how many sessions of this rule are kept: the newest',
  bytes: 'how many bytes of events, images and files they may have together: the newest are kept',
} as const

type Condition = keyof typeof RETENTION_CONDITIONS
export type RetentionBound = keyof typeof RETENTION_BOUNDS

export type RetentionRule = {
  /** For reports. */
  readonly name: string
  /** Its sessions are never erased by themselves. */
  readonly keep?: boolean
} & { readonly [Name in Condition]?: readonly string[] } & {
  readonly [Name in RetentionBound]?: number
}

/** Where sessions go before retention erases them. */
export interface SessionArchive {
  /**
   * Resolves when the session is in the archive for good, with its images and files. Once it is
   * there, it is not written again.
   */
  keep(row: SessionRow, store: Pick<Store, 'read' | 'readBlob'>): Promise<void>
  /** Removes what it has of these sessions; returns how many files that were. */
  remove(sessions: readonly string[]): Promise<number>
  /** The same for all sessions of a principal, also those that the store does not have any more. */
  removeOf(principal: string): Promise<number>
}

/** What is decided about a session. */
export type Verdict = {
  /** Null: the limit `retainMs`. */
  readonly rule: string | null
  /** What it is beyond; null: it stays. */
  readonly beyond: RetentionBound | null
}

/** A session from an archive stays so long at least, whatever the rules: it is to be looked at. */
const RESTORED_MS = 86_400_000
const RULES_MAX = 1_000
const NAME = /^[\w .:-]{1,64}$/

/** A program hands over an option; the configuration file was checked before. */
export function checkRetention(rules: readonly RetentionRule[]): readonly RetentionRule[] {
  if (!Array.isArray(rules) || rules.length > RULES_MAX) {
    throw invalid('retention.rules', `must be a list of at most ${RULES_MAX} rules`)
  }
  const names = new Set<string>()
  for (const [index, rule] of rules.entries()) {
    const field = `retention.rules.${index}`
    checkRule(rule, field)
    if (names.has(rule.name)) throw invalid(`${field}.name`, 'is the name of two rules')
    names.add(rule.name)
  }
  return rules
}

function checkRule(rule: RetentionRule, field: string): void {
  if (typeof rule !== 'object' || rule === null) throw invalid(field, 'must be an object')
  const { name, keep, ...others } = rule
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw invalid(`${field}.name`, 'must have 1 to 64 letters, digits, spaces and _ . : -')
  }
  if (keep !== undefined && typeof keep !== 'boolean') {
    throw invalid(`${field}.keep`, 'must be true or false')
  }
  for (const [part, value] of Object.entries(others)) checkPart(part, value, `${field}.${part}`)
  const bounds = Object.keys(RETENTION_BOUNDS).filter((bound) => Object.hasOwn(rule, bound))
  if (keep === true && bounds.length > 0) {
    throw invalid(field, `keeps its sessions: ${bounds.join(' and ')} would do nothing`)
  }
  if (keep !== true && bounds.length === 0) {
    throw invalid(field, 'must have keep, or one of ageMs, count and bytes')
  }
}

function checkPart(part: string, value: unknown, field: string): void {
  if (Object.hasOwn(RETENTION_BOUNDS, part)) {
    if (typeof value === 'number' && value >= 0 && value <= LIMIT_MAX) return
    throw invalid(field, `must be a number from 0 to ${LIMIT_MAX}`)
  }
  if (!Object.hasOwn(RETENTION_CONDITIONS, part)) {
    throw invalid(field, 'is no field of a retention rule')
  }
  const words: readonly unknown[] = Array.isArray(value) ? value : []
  const isList = words.length > 0 && words.every((word) => typeof word === 'string' && word !== '')
  if (!isList) throw invalid(field, 'must be a list of texts that are not empty')
  if (part !== 'labels') return
  const bad = (words as readonly string[]).find((word) => !word.includes(':'))
  if (bad !== undefined) throw invalid(field, `must be NAME:VALUE or NAME:*, not ${bad}`)
}

/** Judges sessions one by one, the newest first. */
export class RetentionJudge {
  readonly #rules: readonly RetentionRule[]
  readonly #retainMs: number
  /** What the rules have kept so far. */
  readonly #kept = new Map<string, { count: number; bytes: number }>()

  constructor(rules: readonly RetentionRule[], retainMs: number) {
    this.#rules = rules
    this.#retainMs = retainMs
  }

  /** Of all sessions that could go, the youngest were closed so long ago. */
  get ageMsMin(): number {
    const ages = this.#rules.map(({ keep, count, bytes, ageMs = 0 }) => {
      if (keep === true) return Number.POSITIVE_INFINITY
      return count === undefined && bytes === undefined ? ageMs : 0
    })
    return Math.min(this.#retainMs, ...ages)
  }

  judge(row: SessionRow, now: number): Verdict {
    const rule = this.#rules.find((one) => isAbout(one, row))
    const ageMs = now - row.updatedAt
    const isNew = row.isRestored === true && ageMs < RESTORED_MS
    if (isNew) return { rule: rule?.name ?? null, beyond: null }
    if (rule === undefined) {
      return { rule: null, beyond: ageMs >= this.#retainMs ? 'ageMs' : null }
    }
    return { rule: rule.name, beyond: this.#beyond(rule, row, ageMs) }
  }

  #beyond(rule: RetentionRule, { bytes }: SessionRow, ageMs: number): RetentionBound | null {
    if (rule.keep === true) return null
    if (ageMs >= (rule.ageMs ?? Number.POSITIVE_INFINITY)) return 'ageMs'
    const kept = this.#kept.get(rule.name) ?? { count: 0, bytes: 0 }
    if (kept.count >= (rule.count ?? Number.POSITIVE_INFINITY)) return 'count'
    // One that does not fit is not passed over for a smaller, older one.
    if (kept.bytes + bytes > (rule.bytes ?? Number.POSITIVE_INFINITY)) {
      this.#kept.set(rule.name, { ...kept, bytes: Number.POSITIVE_INFINITY })
      return 'bytes'
    }
    this.#kept.set(rule.name, { count: kept.count + 1, bytes: kept.bytes + bytes })
    return null
  }
}

function isAbout(rule: RetentionRule, { labels, agent, principal }: SessionRow): boolean {
  const { agents, principals, labels: wanted } = rule
  if (agents !== undefined && !agents.includes(agent)) return false
  if (principals !== undefined && !principals.includes(principal)) return false
  return wanted === undefined || wanted.some((label) => hasLabel(labels, label))
}

function hasLabel(labels: SessionRow['labels'], wanted: string): boolean {
  const end = wanted.indexOf(':')
  const [name, value] = [wanted.slice(0, end), wanted.slice(end + 1)]
  return Object.hasOwn(labels, name) && (value === '*' || labels[name] === value)
}

export type RetentionPreview = {
  /** How many sessions each rule keeps, and how many would go; `rule` null: by `retainMs`. */
  readonly rules: readonly RetentionCount[]
  /** The newest of those that would go. */
  readonly sessions: readonly (Pick<SessionRow, 'id' | 'key' | 'agent' | 'principal' | 'bytes'> & {
    readonly closedAt: number
    readonly rule: string | null
    readonly beyond: RetentionBound
  })[]
}

export type RetentionCount = {
  readonly rule: string | null
  readonly kept: number
  readonly keptBytes: number
  readonly gone: number
  readonly goneBytes: number
}

/** What a preview names. */
const PREVIEWED_MAX = 1_000

type Previewed = {
  readonly store: Pick<Store, 'list'>
  readonly rules: readonly RetentionRule[]
  readonly limits: { readonly retainMs: number; readonly listMax: number }
  readonly now: number
}

/** What retention would erase now. Reads the list of all closed sessions, and changes nothing. */
export async function previewRetention(previewed: Previewed): Promise<RetentionPreview> {
  const { store, rules, limits, now } = previewed
  const judge = new RetentionJudge(rules, limits.retainMs)
  const counts = new Map<string | null, RetentionCount>()
  const sessions: RetentionPreview['sessions'][number][] = []
  for (const rule of [...rules.map(({ name }) => name), null]) {
    counts.set(rule, { rule, kept: 0, keptBytes: 0, gone: 0, goneBytes: 0 })
  }
  for await (const row of closedSessions(store, now, limits.listMax)) {
    const { rule, beyond } = judge.judge(row, now)
    const count = counts.get(rule)
    if (count === undefined) throw new HoldfastError('internal', `there is no rule ${rule}`)
    counts.set(rule, counted(count, row.bytes, beyond !== null))
    if (beyond === null || sessions.length >= PREVIEWED_MAX) continue
    const { id, key, agent, principal, bytes, updatedAt: closedAt } = row
    sessions.push({ id, key, agent, principal, bytes, closedAt, rule, beyond })
  }
  return { rules: [...counts.values()], sessions }
}

function counted(count: RetentionCount, bytes: number, isGone: boolean): RetentionCount {
  const { kept, keptBytes, gone, goneBytes } = count
  if (isGone) return { ...count, gone: gone + 1, goneBytes: goneBytes + bytes }
  return { ...count, kept: kept + 1, keptBytes: keptBytes + bytes }
}

async function* closedSessions(
  store: Pick<Store, 'list'>,
  closedBefore: number,
  limit: number,
): AsyncGenerator<SessionRow> {
  let page = await store.list({ closedBefore, limit })
  for (;;) {
    yield* page.sessions
    if (page.nextCursor === null) return
    page = await store.list({ closedBefore, limit, cursor: page.nextCursor })
  }
}
