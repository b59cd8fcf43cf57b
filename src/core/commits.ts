/**
 * From decided commands to the store, and what followers of the store learn of it: `Batch` decides
 * the commands of one session, `GroupCommit` appends the batches of many sessions in one durable
 * step, `ChangeFeed` reads which sessions have changed.
 */
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { Command, Moment } from './commands.ts'
import { EVENT_TYPES, type Draft, type SessionEvent } from './events.ts'
import type { StopSignal } from './feed.ts'
import { decide, evolve } from './session.ts'
import type { Session } from './state.ts'
import type { Append, AppendOutcome, ChangePage, SessionRow } from './store.ts'
import { isTerminal } from './turns.ts'

export type CommitContext = Pick<
  CoreContext,
  'store' | 'clock' | 'limits' | 'counters' | 'figures' | 'diagnose'
> & { readonly changes: ChangeFeed }

type PendingAppend = {
  readonly append: Append
  readonly settle: (outcome: AppendOutcome) => void
  readonly fail: (error: unknown) => void
}

/** Fewer appends than these are not worth a commit of their own. */
const SHARE_MIN = 16

/**
 * Appends of many sessions that are ready at the same time share one durable step. There is no
 * timer: what waits when the store is free goes together. A session has at most one append under
 * way, so the order within a session is its own.
 */
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
      this.#node.figures.commit.observeMs(this.#node.clock.monotonic() - began)
      this.#node.figures.commitAppends.observe(batch.length)
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

/**
 * What a list says of a session: what it is doing, or how it ended what it did last. It is the
 * status after `events`, which led to `session`; empty: as it was before them.
 */
export function statusAfter(
  { closed, asks, running, queued }: Session,
  events: readonly SessionEvent[],
): Pick<Append, 'status' | 'queuedTurns'> {
  if (closed !== null) return {}
  if (asks.length > 0) return { status: 'waiting', queuedTurns: queued.length }
  if (running !== null) return { status: 'running', queuedTurns: queued.length }
  if (queued.length > 0) return { status: 'queued', queuedTurns: queued.length }
  const end = events.findLast(isTerminal)
  return end === undefined ? {} : { status: end.type === 'turn.failed' ? 'failed' : 'idle' }
}

/** How many clients are attached and connected. */
export function attachedClients({ attachments }: Pick<Session, 'attachments'>): number {
  let count = 0
  for (const { state } of attachments) if (state === 'live') count += 1
  return count
}

/** Gives a draft its position in the log. `decide` made it for this alone, so no copy is taken. */
function place(draft: Draft, seq: number, at: number): SessionEvent {
  const event = draft as Draft & { seq: number; at: number }
  event.seq = seq
  event.at = at
  if (EVENT_TYPES[event.type].ignorable) (event as { ignorable?: true }).ignorable = true
  return event
}

/** From a commit of this node to the next read: what is committed meanwhile is in the same page. */
const COALESCE_MS = 100
/** Between two looks for what other nodes have committed. */
const LOOK_MS = 500

/** Pages without anything visible that are read on before a reader is answered. */
const SKIPPED_PAGES_MAX = 64

/** Whether a follower may see this session. */
export type IsVisible = (row: SessionRow) => boolean

export type FollowChangesOptions = {
  /** The position of the last page that was seen; without it, only what changes from now on. */
  readonly after?: number
  readonly signal?: StopSignal
  /** Pages without anything visible too, for a follower that keeps its position. */
  readonly isEveryPage?: boolean
}

/**
 * Following the store's change feed: which sessions changed, on any node.
 *
 * A follower is only a position. It reads on shortly after this node has committed something, and
 * otherwise looks now and then for what other nodes have committed. Followers at the same position
 * share one read. So the feed costs nothing without followers, and little under load.
 */
export class ChangeFeed {
  readonly #context: Pick<CoreContext, 'store' | 'clock' | 'limits'>
  readonly #reads = new Map<number, ReturnType<ChangeFeed['read']>>()
  readonly #waiting = new Set<() => void>()
  /** Counts commits, so that none between a read and the wait after it is missed. */
  #commits = 0
  #cancelLook: (() => void) | null = null
  #isSoon = false
  #isClosed = false

  constructor(context: Pick<CoreContext, 'store' | 'clock' | 'limits'>) {
    this.#context = context
  }

  /** Pages of what is visible, until the signal is aborted or Holdfast is closed. */
  async *follow(
    { after, signal, isEveryPage = false }: FollowChangesOptions,
    isVisible: IsVisible = () => true,
  ): AsyncGenerator<ChangePage, void> {
    let position = after ?? (await this.read(null, 0)).position
    while (!this.#isClosed && signal?.aborted !== true) {
      const commits = this.#commits
      const before = position
      const { hasMore, ...page } = await this.#shared(position)
      position = page.position
      const changes = page.changes.filter(({ row }) => isVisible(row))
      const hasMoved = isEveryPage && page.position !== before
      if (changes.length > 0 || hasMoved) yield { changes, position }
      if (!hasMore && commits === this.#commits) await this.#news(signal)
    }
  }

  /** One page of what is visible, without internal sessions; after null: the feed's end. */
  async read(
    after: number | null,
    limit: number,
    isVisible: IsVisible = () => true,
  ): Promise<ChangePage & { hasMore: boolean }> {
    const { changes, position } = await this.#context.store.changes(after, limit)
    const shown = changes.filter(({ row }) => !row.internal && isVisible(row))
    return { changes: shown, position, hasMore: changes.length > 0 }
  }

  /**
   * The next page that has something visible, at most `most` of it. How much else there is does not
   * show: pages without anything are skipped, and `size` changes are read at a time, fewer only if
   * too many of them are visible.
   */
  async readVisible(
    after: number | null,
    { most, size }: { readonly most: number; readonly size: number },
    isVisible: IsVisible,
  ): Promise<ChangePage & { hasMore: boolean }> {
    let page = await this.#readAtMost(after, { most, size }, isVisible)
    for (let skipped = 1; skipped < SKIPPED_PAGES_MAX; skipped += 1) {
      if (page.changes.length > 0 || !page.hasMore) break
      page = await this.#readAtMost(page.position, { most, size }, isVisible)
    }
    return page
  }

  async #readAtMost(
    after: number | null,
    { most, size }: { readonly most: number; readonly size: number },
    isVisible: IsVisible,
  ): Promise<ChangePage & { hasMore: boolean }> {
    const page = await this.read(after, size, isVisible)
    if (page.changes.length <= most) return page
    const half = Math.max(most, Math.floor(size / 2))
    return this.#readAtMost(after, { most, size: half }, isVisible)
  }

  #shared(position: number): ReturnType<ChangeFeed['read']> {
    const underWay = this.#reads.get(position)
    if (underWay !== undefined) return underWay
    const { listMax } = this.#context.limits
    const reading = this.read(position, listMax).finally(() => this.#reads.delete(position))
    this.#reads.set(position, reading)
    return reading
  }

  #news(signal: StopSignal | undefined): Promise<void> {
    // It may have been closed, or left, while the store was asked.
    if (this.#isClosed || signal?.aborted === true) return Promise.resolve()
    return new Promise((resolve) => {
      const done = (): void => {
        signal?.removeEventListener('abort', done)
        this.#waiting.delete(done)
        resolve()
      }
      this.#waiting.add(done)
      signal?.addEventListener('abort', done)
      if (this.#cancelLook === null) this.#lookAfter(LOOK_MS)
    })
  }

  #lookAfter(ms: number): void {
    this.#cancelLook?.()
    this.#cancelLook = this.#context.clock.after(ms, () => this.#look())
  }

  #look(): void {
    this.#cancelLook?.()
    this.#cancelLook = null
    this.#isSoon = false
    for (const wake of [...this.#waiting]) wake()
  }

  /** This node has committed something. */
  committed(): void {
    this.#commits += 1
    if (this.#isSoon || this.#waiting.size === 0) return
    this.#isSoon = true
    this.#lookAfter(COALESCE_MS)
  }

  close(): void {
    this.#isClosed = true
    this.#look()
  }
}
