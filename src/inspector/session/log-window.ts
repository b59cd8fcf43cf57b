/**
 * A part of a session's log without a gap. Events are added behind it and before it, and it is cut
 * at either end, so that it takes only so much memory however long the log is.
 *
 * The conversation is folded from the same events: turn by turn, so that a page of earlier events
 * costs no more than the turns that it is about.
 */
import { batch, signal, type Signal } from '@preact/signals'
import type { SessionEvent } from '../../client/index.ts'
import { closedSentence } from './ending.ts'
import { TurnFold, type TurnView } from './conversation/turn-view.ts'

type Origin = NonNullable<Extract<SessionEvent, { type: 'session.created' }>['origin']>

/** In the order of their places. */
type Placed = { readonly key: string; readonly place: number }

export type ConversationItem =
  | (Placed & { readonly type: 'turn'; readonly turn: TurnModel })
  | (Placed & { readonly type: 'note'; readonly text: string })
  | (Placed & {
      readonly type: 'earlier'
      readonly messages: Origin['messages']
      readonly omitted: number
      readonly session: string | null
    })

export class TurnModel {
  readonly id: string
  readonly view: Signal<TurnView>
  #fold: TurnFold
  #events: readonly SessionEvent[]

  constructor(id: string, events: readonly SessionEvent[]) {
    this.id = id
    this.#events = events
    this.#fold = new TurnFold(id)
    this.view = signal(this.#fold.add(events))
  }

  /** Those that it knows already are left out: it may outlive a part of the log that was cut. */
  append(events: readonly SessionEvent[]): void {
    const last = this.#events.at(-1)?.seq ?? 0
    const added = events.filter(({ seq }) => seq > last)
    this.#events = [...this.#events, ...added]
    this.view.value = this.#fold.add(added)
  }

  prepend(events: readonly SessionEvent[]): void {
    const first = this.#events[0]?.seq ?? 0
    const added = events.filter(({ seq }) => seq < first)
    if (added.length === 0) return
    this.#events = [...added, ...this.#events]
    this.#fold = new TurnFold(this.id)
    this.view.value = this.#fold.add(this.#events)
  }

  get isOver(): boolean {
    return this.view.peek().endedAt !== null
  }

  /** Its place in the conversation: turns that wait come after those that have started. */
  get place(): number {
    const { startedSeq, state } = this.view.peek()
    const first = this.#events[0]?.seq ?? 0
    if (state === 'queued') return BEHIND_STARTED + first
    return startedSeq ?? first
  }
}

const BEHIND_STARTED = 1e15

let windows = 0

export class LogWindow {
  readonly id = (windows += 1)
  /** All known events, oldest first. */
  readonly events = signal<readonly SessionEvent[]>([])
  readonly items = signal<readonly ConversationItem[]>([])
  /** The position before the first known event; 0: all are known. */
  readonly from = signal(0)
  #byKey = new Map<string, ConversationItem>()

  /** The position of the last known event. */
  get end(): number {
    return this.events.peek().at(-1)?.seq ?? this.from.peek()
  }

  get size(): number {
    return this.events.peek().length
  }

  /** Whether the event is known, or would be if it could be seen. */
  has(seq: number): boolean {
    return seq > this.from.peek() && seq <= this.end
  }

  append(events: readonly SessionEvent[]): void {
    batch(() => {
      this.events.value = [...this.events.peek(), ...events]
      this.#fold(events, 'after')
    })
  }

  /** `events` end right before the first known one; `from` is the position before them. */
  prepend(events: readonly SessionEvent[], from: number): void {
    batch(() => {
      this.events.value = [...events, ...this.events.peek()]
      this.from.value = from
      this.#fold(events, 'before')
    })
  }

  /** Forgets all but the last events, and turns that are over before them. */
  keepLast(count: number): void {
    const kept = this.events.peek().slice(-count)
    const from = (kept[0]?.seq ?? 1) - 1
    const isKept = (item: ConversationItem): boolean =>
      item.place > from || (item.type === 'turn' && !item.turn.isOver)
    this.#take(kept, from, this.items.peek().filter(isKept))
  }

  /** Forgets all but the first events, and turns that start behind them. */
  keepFirst(count: number): void {
    const kept = this.events.peek().slice(0, count)
    const end = kept.at(-1)?.seq ?? 0
    const items = this.items.peek().filter(({ place }) => place <= end)
    this.#take(kept, this.from.peek(), items)
  }

  /** The same part of the log, which from now on goes its own way. */
  copy(): LogWindow {
    const copy = new LogWindow()
    copy.#take(this.events.peek(), this.from.peek(), this.items.peek())
    return copy
  }

  turn(id: string): TurnModel | null {
    const item = this.#byKey.get(id)
    return item?.type === 'turn' ? item.turn : null
  }

  #take(events: readonly SessionEvent[], from: number, items: readonly ConversationItem[]): void {
    this.#byKey = new Map(items.map((item) => [item.key, item]))
    batch(() => {
      this.from.value = from
      this.events.value = events
      this.items.value = items
    })
  }

  #fold(events: readonly SessionEvent[], where: 'before' | 'after'): void {
    let isChanged = false
    for (const event of events) {
      const item = 'turn' in event ? null : otherItem(event)
      if (item === null) continue
      this.#byKey.set(item.key, item)
      isChanged = true
    }
    for (const [id, own] of byTurn(events)) isChanged = this.#foldTurn(id, own, where) || isChanged
    if (!isChanged) return
    this.items.value = [...this.#byKey.values()].sort((one, other) => one.place - other.place)
  }

  /** True if the turn is new, or has another place now. */
  #foldTurn(id: string, events: readonly SessionEvent[], where: 'before' | 'after'): boolean {
    const known = this.turn(id)
    const turn = known ?? new TurnModel(id, events)
    if (known !== null) known[where === 'before' ? 'prepend' : 'append'](events)
    const { place } = turn
    if (known !== null && this.#byKey.get(id)?.place === place) return false
    this.#byKey.set(id, { type: 'turn', key: id, place, turn })
    return true
  }
}

/** Checkpoints of the output are no part of what is shown. */
function byTurn(events: readonly SessionEvent[]): ReadonlyMap<string, readonly SessionEvent[]> {
  const turns = new Map<string, SessionEvent[]>()
  for (const event of events) {
    if (!('turn' in event) || event.type === 'turn.output') continue
    const known = turns.get(event.turn)
    if (known === undefined) turns.set(event.turn, [event])
    else known.push(event)
  }
  return turns
}

/** What the conversation shows of events that belong to no turn. */
function otherItem(event: SessionEvent): ConversationItem | null {
  const { seq } = event
  const place = { key: `event ${seq}`, place: seq }
  switch (event.type) {
    case 'session.created': {
      const { origin } = event
      if (origin === undefined || origin === null) return null
      const { messages, omitted = 0, session = null } = origin
      return { type: 'earlier', ...place, messages, omitted, session }
    }
    case 'session.granted':
    case 'session.ungranted': {
      const grants = event.grants.map(({ label }) => label).join(', ')
      const what = event.type === 'session.granted' ? 'Allowed from now on' : 'Not allowed any more'
      return { type: 'note', ...place, text: `${what}: ${grants}` }
    }
    case 'session.configured':
      return { type: 'note', ...place, text: `Settings: ${JSON.stringify(event.settings)}` }
    case 'session.closed':
      return { type: 'note', ...place, text: closedSentence(event.reason) }
    default:
      return null
  }
}
