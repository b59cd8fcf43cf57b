/**
 * A part of a session's log without a gap: its end, as far back as it was read. Events are added
 * behind it as they come, and earlier ones before it as a reader goes back.
 *
 * The conversation is folded from the same events: turn by turn, so that a page of earlier events
 * costs no more than the turns that it is about.
 */
import { signal, type Signal } from '@preact/signals'
import type { SessionEvent } from '../../client/index.ts'
import { closedSentence } from './ending.ts'
import { foldTurn, type TurnView } from './conversation/turn-view.ts'

type Origin = NonNullable<Extract<SessionEvent, { type: 'session.created' }>['origin']>

export type ConversationItem =
  | { readonly type: 'turn'; readonly key: string; firstSeq: number; readonly turn: TurnModel }
  | { readonly type: 'note'; readonly key: string; firstSeq: number; readonly text: string }
  | {
      readonly type: 'earlier'
      readonly key: string
      firstSeq: number
      readonly messages: Origin['messages']
      readonly omitted: number
      readonly session: string | null
    }

export class TurnModel {
  readonly id: string
  readonly view: Signal<TurnView>
  #events: SessionEvent[]

  constructor(id: string, events: SessionEvent[]) {
    this.id = id
    this.#events = events
    this.view = signal(foldTurn(id, events))
  }

  add(events: readonly SessionEvent[], where: 'before' | 'after'): void {
    this.#events = where === 'before' ? [...events, ...this.#events] : [...this.#events, ...events]
    this.view.value = foldTurn(this.id, this.#events)
  }
}

export class LogWindow {
  /** All known events, oldest first. */
  readonly events = signal<readonly SessionEvent[]>([])
  readonly items = signal<readonly ConversationItem[]>([])
  /** The position before the first known event; 0: all are known. */
  readonly from = signal(0)
  readonly #byKey = new Map<string, ConversationItem>()

  /** The position of the last known event. */
  get end(): number {
    return this.events.peek().at(-1)?.seq ?? this.from.peek()
  }

  clear(): void {
    this.#byKey.clear()
    this.events.value = []
    this.items.value = []
    this.from.value = 0
  }

  append(events: readonly SessionEvent[]): void {
    this.events.value = [...this.events.peek(), ...events]
    this.#fold(events, 'after')
  }

  /** `events` end right before the first known one; `from` is the position before them. */
  prepend(events: readonly SessionEvent[], from: number): void {
    this.events.value = [...events, ...this.events.peek()]
    this.from.value = from
    this.#fold(events, 'before')
  }

  turn(id: string): TurnModel | null {
    const item = this.#byKey.get(id)
    return item?.type === 'turn' ? item.turn : null
  }

  #fold(events: readonly SessionEvent[], where: 'before' | 'after'): void {
    const byTurn = new Map<string, SessionEvent[]>()
    let isChanged = false
    for (const event of events) {
      if ('turn' in event && event.type !== 'turn.output') {
        const known = byTurn.get(event.turn)
        if (known === undefined) byTurn.set(event.turn, [event])
        else known.push(event)
      } else {
        const item = otherItem(event)
        if (item === null) continue
        this.#byKey.set(item.key, item)
        isChanged = true
      }
    }
    for (const [id, own] of byTurn) {
      const item = this.#byKey.get(id)
      const firstSeq = own[0]?.seq ?? 0
      if (item?.type === 'turn') {
        item.turn.add(own, where)
        if (where === 'after') continue
        item.firstSeq = firstSeq
      } else {
        const turn = new TurnModel(id, own)
        this.#byKey.set(id, { type: 'turn', key: id, firstSeq, turn })
      }
      isChanged = true
    }
    if (!isChanged) return
    const all = [...this.#byKey.values()]
    this.items.value = all.sort((one, other) => one.firstSeq - other.firstSeq)
  }
}

/** What the conversation shows of events that belong to no turn. */
function otherItem(event: SessionEvent): ConversationItem | null {
  const { seq } = event
  const place = { key: `event ${seq}`, firstSeq: seq }
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
