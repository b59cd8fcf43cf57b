/**
 * The followers of all asks that have said which kinds they answer: each counts as a client to ask
 * while it follows, and for `answerGraceMs` after that, in the sessions in which it may answer.
 *
 * Where several nodes share a store, each announces its followers there. A node reads what the
 * others have announced for asks that do not wait (`onNobody: deny`) only: before it would settle
 * one for lack of a client, and once a second while one waits. So much later it knows that a
 * follower on another node counts no more.
 */
import { scopesOn, type Access } from './access.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError, messageOf } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
import { LOCAL, type Session } from './state.ts'
import type { SessionRow } from './store.ts'

/** Between two reads of what other nodes have announced. */
const LOOK_MS = 1_000
/** An announcement is renewed so often, and outlives its node by at most twice as long. */
const RENEW_MS = 3_000

/** Which asks a follower gets. */
export type AskFilter = {
  /** Only those of this session, by its id. */
  readonly session?: string
  readonly kind?: string
  /** Only those of sessions with this label. */
  readonly label?: { readonly name: string; readonly value: string }
}

/** Of which sessions, for a follower that the operator has configured. */
export type SessionFilter = {
  /** Those that have all of these labels. */
  readonly labels?: Readonly<Record<string, string>>
  readonly agents?: readonly string[]
  /** Those that belong to one of these principals. */
  readonly owners?: readonly string[]
}

/** A follower, as its node announces it. `access` null: it may do everything. */
export type AnsweringFollower = AskFilter &
  SessionFilter & {
    readonly access: Access | null
    /** The kinds of ask that it answers. */
    readonly answers: readonly string[]
  }

export type AskedSession = Pick<
  Session | SessionRow,
  'id' | 'principal' | 'shares' | 'agent' | 'labels'
>

/** Whether a follower gets asks of this session, if it may see it. */
export function isFollowed(
  { session, label, labels = {}, agents, owners }: AskFilter & SessionFilter,
  asked: AskedSession,
): boolean {
  if (session !== undefined && asked.id !== session) return false
  if (agents !== undefined && !agents.includes(asked.agent)) return false
  if (owners !== undefined && !owners.includes(asked.principal)) return false
  const isLabelled = ([name, value]: [string, string]): boolean => asked.labels[name] === value
  if (!Object.entries(labels).every(isLabelled)) return false
  return label === undefined || asked.labels[label.name] === label.value
}

function answers(follower: AnsweringFollower, session: AskedSession, kind: string): boolean {
  return (
    follower.answers.includes(kind) &&
    (follower.kind === undefined || follower.kind === kind) &&
    isFollowed(follower, session) &&
    scopesOn({ by: LOCAL, access: follower.access }, session).includes('answer')
  )
}

/** The node that this is a part of. */
type AnswerersContext = Pick<CoreContext, 'store' | 'clock' | 'limits' | 'diagnose'> & {
  readonly node: string
  /** Whether an ask waits here that must not wait without a client to ask. */
  readonly needsAnswerers: () => boolean
  /** Some follower does not count any more. */
  readonly answererLeft: () => void
}

export class Answerers {
  readonly #context: AnswerersContext
  /** By what they say as JSON: those that say the same are one. */
  readonly #here = new Map<string, { readonly follower: AnsweringFollower; count: number }>()
  /** Those of other nodes, as they were at the last read. */
  #there: readonly AnsweringFollower[] = []
  /** How to cancel the timers: of grace times, of the next read, of the next announcement. */
  readonly #cancels = new Set<() => void>()
  #isLooking = false
  #isAnnouncing = false
  #isClosed = false
  #announced: Promise<void> = Promise.resolve()

  constructor(context: AnswerersContext) {
    this.#context = context
  }

  /** Whether some follower counts as a client to ask for this kind in this session. */
  counts(session: AskedSession, kind: string): boolean {
    if (this.#here.size === 0 && this.#there.length === 0) return false
    for (const { follower } of this.#here.values()) {
      if (answers(follower, session, kind)) return true
    }
    return this.#there.some((follower) => answers(follower, session, kind))
  }

  /** Throws `too_many` if its principal has so many that all nodes would have to know of. */
  assertRoom(follower: AnsweringFollower): void {
    const { principal } = follower.access ?? {}
    const said = JSON.stringify(follower)
    if (principal === undefined || this.#here.has(said)) return
    let chars = said.length
    for (const [other, { follower: known }] of this.#here) {
      if (known.access?.principal === principal) chars += other.length
    }
    if (chars <= STATE_LIMITS.answererCharsMax) return
    const message = 'too many different followers answer on behalf of this principal'
    throw new HoldfastError('too_many', message)
  }

  /** Resolves once the other nodes can know of it, with the function that says that it is gone. */
  async join(follower: AnsweringFollower): Promise<() => void> {
    const said = JSON.stringify(follower)
    const same = this.#here.get(said)
    if (same === undefined) this.#here.set(said, { follower, count: 1 })
    else same.count += 1
    if (!this.#isAnnouncing) await this.#keepAnnouncing()
    else await (same === undefined ? this.#announce() : this.#announced)
    return () => this.#after(this.#context.limits.answerGraceMs, () => this.#leave(said))
  }

  #leave(said: string): void {
    const known = this.#here.get(said)
    if (known === undefined) return
    known.count -= 1
    if (known.count > 0) return
    this.#here.delete(said)
    void this.#announce()
    this.#context.answererLeft()
  }

  /**
   * Before an ask is decided that must not wait: if no follower is known that counts, asks what the
   * other nodes have announced by now.
   */
  async find(session: AskedSession, kind: string): Promise<void> {
    if (this.#context.store.cluster === undefined || this.counts(session, kind)) return
    await this.#read()
  }

  async #read(): Promise<void> {
    const { store, node } = this.#context
    const before = JSON.stringify(this.#there)
    try {
      const bodies = (await store.cluster?.answerersBut(node)) ?? []
      this.#there = bodies.flatMap((body) => JSON.parse(body) as readonly AnsweringFollower[])
    } catch (error) {
      this.#report(error)
    }
    if (JSON.stringify(this.#there) !== before) this.#context.answererLeft()
  }

  /** Reads on while asks wait that need it. */
  look(): void {
    if (this.#isLooking || this.#context.store.cluster === undefined) return
    this.#isLooking = true
    this.#after(LOOK_MS, () => {
      this.#isLooking = false
      if (!this.#context.needsAnswerers()) return
      this.look()
      void this.#read()
    })
  }

  async #keepAnnouncing(): Promise<void> {
    if (this.#context.store.cluster === undefined) return
    this.#isAnnouncing = true
    this.#after(RENEW_MS, () => {
      if (this.#here.size > 0) void this.#keepAnnouncing()
      else this.#isAnnouncing = false
    })
    await this.#announce()
  }

  /** One after the other, so that none that was late undoes the last one. */
  #announce(): Promise<void> {
    this.#announced = this.#announced.then(() => this.#announceNow())
    return this.#announced
  }

  async #announceNow(): Promise<void> {
    const { store, node, limits } = this.#context
    const ms = limits.answerGraceMs + 2 * RENEW_MS
    try {
      await store.cluster?.announceAnswerers(node, `[${[...this.#here.keys()].join()}]`, ms)
    } catch (error) {
      this.#report(error)
    }
  }

  /** The next time it is tried again. */
  #report(error: unknown): void {
    const facts = { reason: 'answerers', error: messageOf(error) }
    this.#context.diagnose('sweep_failed', 'nodes could not exchange who answers asks', facts)
  }

  /** Once closed, nothing is due any more. */
  #after(ms: number, run: () => void): void {
    if (this.#isClosed) return
    const cancel = this.#context.clock.after(ms, () => {
      this.#cancels.delete(cancel)
      run()
    })
    this.#cancels.add(cancel)
  }

  close(): void {
    this.#isClosed = true
    for (const cancel of this.#cancels) cancel()
    this.#cancels.clear()
  }
}
