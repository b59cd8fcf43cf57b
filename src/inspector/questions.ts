/** The open asks, each with its options as buttons. The first answer of any client counts. */
import type { SessionEvent } from '../client/index.ts'
import { button, buttons, element, fill, form, setText } from './element.ts'

type AskOpened = Extract<SessionEvent, { type: 'ask.opened' }>

export class Questions {
  readonly element = element('div.asks', { 'aria-live': 'polite', hidden: true })
  readonly #answer: (ask: string, answer: unknown) => Promise<void>
  readonly #open = new Map<string, HTMLElement>()
  #isAnswerable = true

  constructor(answer: (ask: string, answer: unknown) => Promise<void>) {
    this.#answer = answer
  }

  clear(): void {
    this.#open.clear()
    this.#render()
  }

  /** Whether this page can answer. */
  show(isAnswerable: boolean): void {
    this.#isAnswerable = isAnswerable
    this.#render()
  }

  event(event: SessionEvent): void {
    if (event.type === 'ask.opened') this.#open.set(event.ask, this.#card(event))
    else if (event.type === 'ask.settled') this.#open.delete(event.ask)
    else if (event.type === 'session.closed') this.#open.clear()
    else return
    this.#render()
  }

  #render(): void {
    this.element.hidden = this.#open.size === 0 || !this.#isAnswerable
    fill(this.element, ...this.#open.values())
  }

  #card({ ask, kind, question, options }: AskOpened): HTMLElement {
    const problem = element('span.problem')
    const card = element(
      'section.ask',
      { 'data-ask': ask, 'aria-label': `Question, ${kind}` },
      element('p', question, ' ', problem),
    )
    const enable = (isEnabled: boolean): void => {
      for (const option of card.querySelectorAll('button')) option.disabled = !isEnabled
    }
    const answer = (value: unknown): void => {
      enable(false)
      this.#answer(ask, value).catch((error: Error) => {
        enable(true)
        setText(problem, error.message)
      })
    }
    const choices = options?.map(({ id, label }) =>
      button(label, () => answer(id), { 'data-option': id }),
    )
    card.append(choices === undefined ? freeAnswer(answer) : buttons(...choices))
    return card
  }
}

/** An ask without options accepts any text. */
function freeAnswer(answer: (value: unknown) => void): HTMLElement {
  const input = element('input', { name: 'answer', 'aria-label': 'Answer', autocomplete: 'off' })
  const send = element('button', 'Answer')
  return form(() => answer(input.value), { class: 'buttons' }, input, send)
}
