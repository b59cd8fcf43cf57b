/**
 * The asks of all sessions that a caller may see: one page of those that wait, or each as it is
 * opened and settled, on whichever node.
 *
 * A follower begins with all that wait, and goes on with the change feed. Of a session in which
 * asks wait, as far as it knows, it reads the events of each change; of any other it lists the asks
 * that wait, if there are any. It never loads a session, and it misses an ask only if that is
 * settled again before it looks.
 */
import { principalsOf, scopesOn, type Caller } from './access.ts'
import { isFollowed, type AskFilter } from './answerers.ts'
import { openedAsk, outcomeOf } from './asks.ts'
import type { ChangeFeed } from './commits.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError } from './errors.ts'
import type { AskEvent, SessionEvent } from './events.ts'
import type { StopSignal } from './feed.ts'
import type { Ask, AskOutcome } from './state.ts'
import type { AskQuery, AskRow, ChangePage, SessionChange, SessionRow } from './store.ts'

/** An ask that waits, with its session. */
export type OpenAsk = { readonly ask: Ask; readonly openedAt: number; readonly row: SessionRow }

export type OpenAskPage = { readonly asks: readonly OpenAsk[]; readonly nextCursor: string | null }

export type InboxEvent =
  | ({ readonly type: 'ask.opened' } & OpenAsk)
  | {
      readonly type: 'ask.settled'
      readonly ask: string
      readonly row: SessionRow
      /** `withdrawn` also if the session is not for the follower to see any more. */
      readonly outcome: AskOutcome
      readonly settledAt: number
    }

/** What happened, in order. */
export type InboxPage = {
  readonly events: readonly InboxEvent[]
  /** Where a follower that comes back goes on; null: the first list is not complete. */
  readonly position: number | null
  /** With the end of the first list: all that wait now. A follower forgets any others. */
  readonly open?: readonly { readonly session: string; readonly ask: string }[]
}

export type FollowAsksOptions = AskFilter & {
  /**
   * The position of the last page that was seen. If that is too long ago, it begins with all that
   * wait, as without one.
   */
  readonly after?: number
  readonly signal?: StopSignal
}

/** So many pages of changes are read for a follower that comes back. */
const MISSED_PAGES_MAX = 10

type InboxContext = Pick<CoreContext, 'store' | 'limits'> & { readonly changes: ChangeFeed }

/** One page of the asks that wait, in the order of their opening. */
export async function listAsks(
  { store }: Pick<CoreContext, 'store'>,
  caller: Caller,
  query: AskQuery,
): Promise<OpenAskPage> {
  const visibleTo = principalsOf(caller)
  const { asks, nextCursor } = await store.listAsks(
    visibleTo === null ? query : { ...query, visibleTo },
  )
  return { asks: asks.map(openAsk), nextCursor }
}

/** The filter among other options. */
export function filterOf({ session, kind, label }: AskFilter): AskFilter {
  return {
    ...(session === undefined ? {} : { session }),
    ...(kind === undefined ? {} : { kind }),
    ...(label === undefined ? {} : { label }),
  }
}

function openAsk({ row, body, openedAt }: AskRow): OpenAsk {
  return { ask: JSON.parse(body) as Ask, openedAt, row }
}

export class AskFollower {
  readonly #context: InboxContext
  readonly #caller: Caller
  readonly #options: FollowAsksOptions
  /** The asks that wait as far as it knows, by session. */
  readonly #known = new Map<string, Set<string>>()

  constructor(context: InboxContext, caller: Caller, options: FollowAsksOptions) {
    this.#context = context
    this.#caller = caller
    this.#options = options
  }

  /** Until the signal is aborted or Holdfast is closed. */
  async *follow(): AsyncGenerator<InboxPage, void> {
    const { after, signal } = this.#options
    const resumedAt = after === undefined ? null : yield* this.#missed(after)
    const position = resumedAt ?? (await this.#feedEnd())
    if (resumedAt === null) {
      this.#known.clear()
      for await (const events of this.#waiting()) yield { events, position: null }
    }
    yield { events: [], position, open: this.#open() }
    const options = { after: position, ...(signal === undefined ? {} : { signal }) }
    for await (const page of this.#context.changes.follow(options)) yield* this.#changed(page)
  }

  async #feedEnd(): Promise<number> {
    return (await this.#context.changes.read(null, 0)).position
  }

  /**
   * What has happened since the position that it comes back with. Returns where that ends; null: it
   * was too long ago.
   */
  async *#missed(after: number): AsyncGenerator<InboxPage, number | null> {
    // First what waits now: all that is opened later is among the changes.
    for await (const events of this.#waiting()) void events
    const end = await this.#feedEnd()
    let position = after
    for (let pages = 0; position < end || pages === 0; pages += 1) {
      const page = pages === MISSED_PAGES_MAX ? null : await this.#changesAfter(position)
      if (page === null) return null
      yield* this.#changed(page, true)
      position = page.position
    }
    return position
  }

  async #changesAfter(position: number) {
    const { changes, limits } = this.#context
    try {
      return await changes.read(position, limits.listMax)
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'changes_gone') return null
      throw error
    }
  }

  /** All that wait, or those of one session, page by page. */
  async *#waiting(only: { readonly session?: string } = {}): AsyncGenerator<readonly InboxEvent[]> {
    const filter = { ...filterOf(this.#options), ...only }
    const limit = this.#context.limits.listMax
    for (let cursor: string | null | undefined; cursor !== null;) {
      const query = { ...filter, limit, ...(cursor === undefined ? {} : { cursor }) }
      const { asks, nextCursor } = await listAsks(this.#context, this.#caller, query)
      for (const { ask, row } of asks) this.#note(row.id, ask.id)
      yield asks.map((ask) => ({ type: 'ask.opened', ...ask }))
      cursor = nextCursor
    }
  }

  #note(session: string, ask: string): void {
    const asks = this.#known.get(session) ?? new Set()
    this.#known.set(session, asks.add(ask))
  }

  #open(): readonly { readonly session: string; readonly ask: string }[] {
    return [...this.#known].flatMap(([session, asks]) => {
      return Array.from(asks, (ask) => ({ session, ask }))
    })
  }

  async *#changed(
    { changes, position }: ChangePage,
    isMissed = false,
  ): AsyncGenerator<InboxPage, void> {
    for (const [index, change] of changes.entries()) {
      const events = await this.#eventsOf(change, isMissed)
      const isLast = index === changes.length - 1
      if (events.length > 0) yield { events, position: isLast && !isMissed ? position : null }
    }
  }

  /** `isMissed`: the follower may know of asks that do not wait any more. */
  async #eventsOf(change: SessionChange, isMissed: boolean): Promise<readonly InboxEvent[]> {
    const events: InboxEvent[] = []
    const { row, seq } = change
    const isVisible = this.#isVisible(row)
    const isKnown = this.#known.has(row.id)
    if (isVisible && (isKnown || isMissed)) {
      for await (const event of this.#askEvents(change)) {
        const shown = this.#shown(event, row, isMissed)
        if (shown !== null) events.push(shown)
      }
    }
    if (isVisible && row.status === 'waiting' && (!isKnown || isMissed)) {
      for await (const page of this.#waiting({ session: row.id })) events.push(...page)
    }
    // The row may be ahead of the change: then the next one has the rest.
    const isOver = row.seq === seq && row.status !== 'waiting'
    if (!isVisible || isOver) events.push(...this.#withdrawn(row))
    return events
  }

  #isVisible(row: SessionRow): boolean {
    // A guest, which sees one session by a link, has no list of all.
    if (principalsOf(this.#caller)?.length === 0) return false
    return isFollowed(this.#options, row) && scopesOn(this.#caller, row).includes('watch')
  }

  async *#askEvents({ row, after, seq }: SessionChange): AsyncGenerator<AskEvent & SessionEvent> {
    const { store, limits } = this.#context
    for (let position = after; position < seq;) {
      const limit = Math.min(seq - position, limits.pageEvents)
      const { events } = await store.read(row.id, position, limit)
      for (const { body } of events) {
        // Most events are not about asks, and need not be parsed.
        if (!body.includes('"type":"ask.')) continue
        const event = JSON.parse(body) as SessionEvent
        if (event.type === 'ask.opened' || event.type === 'ask.settled') yield event
      }
      // It may have been erased.
      if (events.length === 0) return
      position = events.at(-1)!.seq
    }
  }

  #shown(event: AskEvent & SessionEvent, row: SessionRow, isMissed: boolean): InboxEvent | null {
    const { kind } = this.#options
    const isKnown = this.#known.get(row.id)?.has(event.ask) === true
    if (event.type === 'ask.settled') {
      this.#forget(row.id, event.ask)
      if (!isKnown && !isMissed) return null
      const { ask, at: settledAt } = event
      return { type: 'ask.settled', ask, row, outcome: outcomeOf(event), settledAt }
    }
    if (event.type !== 'ask.opened') return null
    if (isKnown || isMissed || (kind !== undefined && event.kind !== kind)) return null
    this.#note(row.id, event.ask)
    return { type: 'ask.opened', ask: openedAsk(event), openedAt: event.at, row }
  }

  #forget(session: string, ask: string): void {
    const asks = this.#known.get(session)
    asks?.delete(ask)
    if (asks?.size === 0) this.#known.delete(session)
  }

  #withdrawn(row: SessionRow): readonly InboxEvent[] {
    const asks = [...(this.#known.get(row.id) ?? [])]
    this.#known.delete(row.id)
    const outcome = { outcome: 'withdrawn' } as const
    return asks.map((ask) => {
      return { type: 'ask.settled', ask, row, outcome, settledAt: row.updatedAt }
    })
  }
}
