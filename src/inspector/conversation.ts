/** The conversation as bubbles: the log folded into turns, and the deltas of the running turn. */
import type { Delta, Input, SessionEvent } from '../client/index.ts'
import { element, setText } from './element.ts'
import { closedSentence } from './ending.ts'

export class ConversationView {
  readonly #empty = element('p.empty', 'No messages yet.')
  readonly element = element('div.conversation', { role: 'log' }, this.#empty)
  readonly #turns = new Map<string, TurnBubbles>()
  readonly #questions = new Map<string, HTMLElement>()
  /** The running turn. */
  running: string | null = null

  clear(): void {
    this.#turns.clear()
    this.#questions.clear()
    this.running = null
    this.element.replaceChildren(this.#empty)
  }

  delta({ turn, text }: Delta): void {
    this.#turn(turn).add(text)
  }

  /** Shows a text that was sent and is not in the log yet; the result removes it. */
  sending(text: string): () => void {
    const bubble = element('div.bubble.user', text)
    const state = element('p.state', 'waits for its turn')
    const waiting = element('article.turn', { 'data-state': 'sending' }, bubble, state)
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
        this.running = event.turn
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
      case 'ask.opened': {
        const line = element('p.note', event.question)
        this.#questions.set(event.ask, line)
        return void this.#turn(event.turn).remark(line)
      }
      case 'ask.settled': {
        const { outcome } = event
        const words = outcome === 'answered' ? textOf(event.answer) : outcome.replaceAll('_', ' ')
        return this.#questions.get(event.ask)?.append(` → ${words}`)
      }
      case 'session.closed':
        this.#empty.remove()
        return this.element.append(element('p.note', closedSentence(event.reason)))
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
    if (this.running === id) this.running = null
    this.#turn(id).ended(state, reason === null ? '' : `${state}: ${reason}`)
  }
}

/** One turn: its input, its messages and its end. */
class TurnBubbles {
  readonly element: HTMLElement
  readonly #question = element('div.bubble.user')
  readonly #state = element('p.state')
  /** The deltas of a message, until the message replaces them. */
  #live: HTMLElement | null = null

  constructor(id: string) {
    const names = { 'data-turn': id, 'aria-label': `Turn ${id}` }
    this.element = element('article.turn', names, this.#question, this.#state)
  }

  asked(input: Input, state: string): void {
    setText(this.#question, inputText(input))
    this.#show(state, state === 'waits' ? 'waits for its turn' : '')
  }

  joined(input: Input): void {
    this.#question.append(`\n\n${inputText(input)}`)
  }

  add(text: string): void {
    this.#live ??= this.remark(element('div.bubble.assistant', { 'data-live': true }))
    this.#live.append(text)
  }

  said(text: string, isPartial: boolean): void {
    const bubble = this.#live ?? this.remark(element('div.bubble.assistant'))
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

  /** Adds something after all that was said so far. */
  remark(line: HTMLElement): HTMLElement {
    this.#state.before(line)
    return line
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
