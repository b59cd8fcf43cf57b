/** The conversation as bubbles: the log folded into turns, and the deltas of the running turn. */
import type { Delta, Input, SessionEvent } from '../client/index.ts'
import { element, setText } from './element.ts'
import { closedSentence } from './ending.ts'

export class ConversationView {
  readonly element = element('div', { class: 'conversation', role: 'log' })
  readonly #empty = element('p', { class: 'empty' }, 'No messages yet.')
  readonly #turns = new Map<string, TurnBubbles>()
  readonly #questions = new Map<string, HTMLElement>()
  #running: string | null = null

  constructor() {
    this.element.append(this.#empty)
  }

  /** The running turn. */
  get running(): string | null {
    return this.#running
  }

  clear(): void {
    this.#turns.clear()
    this.#questions.clear()
    this.#running = null
    this.element.replaceChildren(this.#empty)
  }

  delta({ turn, text }: Delta): void {
    this.#turn(turn).add(text)
  }

  /** Shows a text that was sent and is not in the log yet; the result removes it. */
  sending(text: string): () => void {
    const bubble = element('div', { class: 'bubble user' }, text)
    const state = element('p', { class: 'state' }, 'waits for its turn')
    const waiting = element('article', { class: 'turn', 'data-state': 'sending' }, bubble, state)
    this.#empty.remove()
    this.element.append(waiting)
    return () => waiting.remove()
  }

  event(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.queued':
        return this.#turn(event.turn).asked(event.input, 'waits')
      case 'turn.joined':
        return this.#turn(event.turn).joined(event.input)
      case 'turn.started':
        this.#running = event.turn
        return this.#turn(event.turn).asked(event.input, 'running')
      case 'message.added':
        return this.#turn(event.turn).said(event.text, event.partial === true)
      case 'turn.done':
        return this.#ended(event.turn, 'done', null)
      case 'turn.failed':
        return this.#ended(event.turn, 'failed', event.error.message)
      case 'turn.cancelled':
      case 'turn.interrupted':
        return this.#ended(event.turn, event.type.slice('turn.'.length), event.reason)
      case 'turn.expired':
        return this.#ended(event.turn, 'expired', 'it waited too long')
      case 'ask.opened':
        return this.#question(event.ask, this.#turn(event.turn), event.question)
      case 'ask.settled':
        return this.#settled(event)
      case 'session.closed':
        return this.#note(closedSentence(event.reason))
      default:
    }
  }

  #turn(id: string): TurnBubbles {
    const known = this.#turns.get(id)
    if (known !== undefined) return known
    const turn = new TurnBubbles(id)
    this.#turns.set(id, turn)
    this.#empty.remove()
    // Texts that are not in the log yet come last.
    this.element.insertBefore(turn.element, this.element.querySelector('[data-state=sending]'))
    return turn
  }

  #ended(id: string, state: string, reason: string | null): void {
    if (this.#running === id) this.#running = null
    this.#turn(id).ended(state, reason === null ? '' : `${state}: ${reason}`)
  }

  #question(ask: string, turn: TurnBubbles, question: string): void {
    const line = element('p', { class: 'note' }, question)
    this.#questions.set(ask, line)
    turn.remark(line)
  }

  #settled(event: Extract<SessionEvent, { type: 'ask.settled' }>): void {
    const line = this.#questions.get(event.ask)
    if (line === undefined) return
    const outcome =
      event.outcome === 'answered' ? textOf(event.answer) : event.outcome.replaceAll('_', ' ')
    line.append(` → ${outcome}`)
  }

  #note(words: string): void {
    this.#empty.remove()
    this.element.append(element('p', { class: 'note' }, words))
  }
}

/** One turn: its input, its messages and its end. */
class TurnBubbles {
  readonly element: HTMLElement
  readonly #question = element('div', { class: 'bubble user' })
  readonly #state = element('p', { class: 'state' })
  /** The deltas of a message, until the message replaces them. */
  #live: HTMLElement | null = null

  constructor(id: string) {
    this.element = element(
      'article',
      { class: 'turn', 'data-turn': id, 'aria-label': `Turn ${id}` },
      this.#question,
      this.#state,
    )
  }

  asked(input: Input, state: string): void {
    setText(this.#question, inputText(input))
    this.#show(state, state === 'waits' ? 'waits for its turn' : '')
  }

  joined(input: Input): void {
    this.#question.append(`\n\n${inputText(input)}`)
  }

  add(text: string): void {
    this.#live ??= this.#bubble({ 'data-live': true })
    this.#live.append(text)
  }

  said(text: string, isPartial: boolean): void {
    const bubble = this.#live ?? this.#bubble({})
    this.#live = null
    delete bubble.dataset['live']
    if (isPartial) bubble.dataset['partial'] = ''
    setText(bubble, text)
  }

  ended(state: string, words: string): void {
    // Deltas without a message are not part of the conversation.
    this.#live?.remove()
    this.#live = null
    this.#show(state, words)
  }

  remark(line: HTMLElement): void {
    this.#state.before(line)
  }

  #bubble(attributes: Record<string, boolean>): HTMLElement {
    const bubble = element('div', { class: 'bubble assistant', ...attributes })
    this.#state.before(bubble)
    return bubble
  }

  #show(state: string, words: string): void {
    this.element.dataset['state'] = state
    setText(this.#state, words)
    this.#state.hidden = words === ''
  }
}

function inputText(input: Input): string {
  return typeof input === 'string' ? input : input.text
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
