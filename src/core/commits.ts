/**
 * Group commit: appends of many sessions that are ready at the same time share one durable step.
 * There is no timer: whatever waits when the store is free goes together. A session has at most one
 * append under way, so the order within a session is its own.
 */
import type { ChangeFeed } from './changes.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { Append, AppendOutcome } from './store.ts'
import type { Command, Moment } from './commands.ts'
import { isIgnorable, type Draft, type SessionEvent } from './events.ts'
import { decide, evolve } from './session.ts'
import type { Session } from './state.ts'

export type CommitContext = Pick<
  CoreContext,
  'store' | 'clock' | 'limits' | 'counters' | 'diagnose'
> & { readonly changes: ChangeFeed }

type PendingAppend = {
  readonly append: Append
  readonly settle: (outcome: AppendOutcome) => void
  readonly fail: (error: unknown) => void
}

/** Fewer appends than these are not worth a commit of their own. */
const SHARE_MIN = 16

export class GroupCommit {
  readonly #node: CommitContext
  /** I5: whether this node may still write; asked right before each commit, and after it. */
  readonly #mayWrite: () => boolean
  #waiting: PendingAppend[] = []
  #inFlight = 0
  #due = false

  constructor(node: CommitContext, mayWrite: () => boolean) {
    this.#node = node
    this.#mayWrite = mayWrite
  }

  append(append: Append): Promise<AppendOutcome> {
    const promise = new Promise<AppendOutcome>((settle, fail) => {
      this.#waiting.push({ append, settle, fail })
    })
    this.#flushSoon()
    return promise
  }

  /** When all that is ready now has come this far. */
  #flushSoon(): void {
    if (this.#due || this.#inFlight >= this.#node.limits.commitsInFlightMax) return
    this.#due = true
    this.#node.clock.after(0, () => {
      this.#due = false
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#node.limits.commitsInFlightMax) {
      const batch = this.#waiting.splice(0, this.#share())
      this.#inFlight += 1
      void this.#commit(batch)
    }
  }

  /**
   * Many appends are divided among all commits that may be under way: in a single one, the store
   * would idle while this node works on the answer, and this node while the store works.
   */
  #share(): number {
    const { commitsInFlightMax, commitAppendsMax } = this.#node.limits
    const share = Math.ceil(this.#waiting.length / (commitsInFlightMax - this.#inFlight))
    return Math.min(Math.max(share, SHARE_MIN), commitAppendsMax)
  }

  async #commit(batch: readonly PendingAppend[]): Promise<void> {
    const began = this.#node.clock.monotonic()
    try {
      this.#assertMayWrite()
      const outcomes = await this.#node.store.append(batch.map(({ append }) => append))
      // A process that was frozen meanwhile must not act on this: another node may own the session.
      this.#assertMayWrite()
      this.#node.counters.commits += 1
      this.#node.counters.appends += batch.length
      this.#node.changes.committed()
      batch.forEach(({ settle }, index) => settle(outcomes[index] ?? 'stale'))
    } catch (error) {
      for (const { fail } of batch) fail(error)
    } finally {
      this.#tellSlow(this.#node.clock.monotonic() - began, batch.length)
      this.#inFlight -= 1
      if (this.#waiting.length > 0) this.#flushSoon()
    }
  }

  #tellSlow(ms: number, appends: number): void {
    if (ms < this.#node.limits.slowCommitMs) return
    this.#node.diagnose('commit_slow', 'a commit took long', { ms: Math.round(ms), appends })
  }

  #assertMayWrite(): void {
    if (!this.#mayWrite()) throw new HoldfastError('lease_lost', 'this node has lost its lease')
  }
}

/** What one command has made, and how its caller is answered once the batch is durable. */
type Decided = {
  /** How many of the batch's events are its own or came before. */
  readonly end: number
  readonly answer: () => void
  readonly refuse: (error: unknown) => void
}

/** Commands of one session that are decided together, and appended as one durable step. */
export class Batch {
  /** The state after all that was decided. */
  session: Session
  readonly events: SessionEvent[] = []
  /** The events as JSON. */
  readonly bodies: string[] = []
  readonly #moment: Moment
  readonly #decided: Decided[] = []

  constructor(session: Session, moment: Moment) {
    this.session = session
    this.#moment = moment
  }

  /** The time of its events. */
  get at(): number {
    return this.#moment.at
  }

  /**
   * Decides one more command on top of those before it, or how to make it once those are decided.
   * Exactly one of the callbacks is called, once it is known whether the batch is in the log.
   * Returns the events, or null for a refusal.
   */
  add(
    command: Command | (() => Command),
    settle: (events: readonly SessionEvent[]) => void = () => undefined,
    refuse: (error: unknown) => void = () => undefined,
  ): readonly SessionEvent[] | null {
    try {
      const events = this.#decide(typeof command === 'function' ? command() : command)
      this.#decided.push({ end: this.events.length, answer: () => settle(events), refuse })
      return events
    } catch (refusal) {
      const answer = (): void => refuse(refusal)
      this.#decided.push({ end: this.events.length, answer, refuse })
      return null
    }
  }

  /** All of its events or none: a runner's output may turn out not to be JSON. */
  #decide(command: Command): readonly SessionEvent[] {
    const { seq } = this.session
    const events = decide(this.session, command, this.#moment).map((draft, index) =>
      place(draft, seq + 1 + index, this.at),
    )
    const bodies = events.map((event) => JSON.stringify(event))
    for (const event of events) this.session = evolve(this.session, event)
    this.events.push(...events)
    this.bodies.push(...bodies)
    return events
  }

  /** The batch is durable: acts on each command's events, then answers its caller. */
  settle(act: (event: SessionEvent, json: string) => void): void {
    let index = 0
    for (const { end, answer } of this.#decided) {
      for (; index < end; index += 1) {
        act(this.events[index] as SessionEvent, this.bodies[index] as string)
      }
      answer()
    }
  }

  fail(error: HoldfastError): void {
    for (const { refuse } of this.#decided) refuse(error)
  }
}

/** Gives a draft its position in the log. `decide` made it for this alone, so no copy is taken. */
function place(draft: Draft, seq: number, at: number): SessionEvent {
  const event = draft as Draft & { seq: number; at: number }
  event.seq = seq
  event.at = at
  if (isIgnorable(event.type)) (event as { ignorable?: true }).ignorable = true
  return event
}
