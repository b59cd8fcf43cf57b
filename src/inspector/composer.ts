/** The form that sends a turn, and the button that cancels the running one. */
import type { ClientTurnOptions } from '../client/index.ts'
import { button, buttons, element, form, problemText, selectField, setText } from './element.ts'

export type Busy = NonNullable<ClientTurnOptions['busy']>

const BUSY: readonly (readonly [Busy, string])[] = [
  ['queue', 'wait'],
  ['reject', 'give up'],
  ['interrupt', 'stop the running turn'],
  ['collect', 'join the waiting turns'],
]

export class Composer {
  readonly #text = element('textarea', {
    name: 'text',
    rows: 2,
    placeholder: 'Say something',
    'aria-label': 'What to say',
    onkeydown: (event) => this.#onKey(event as KeyboardEvent),
  })
  readonly #busy = selectField('busy', BUSY)
  readonly #send = element('button.primary', 'Send')
  readonly #cancel: HTMLButtonElement
  readonly #problem = problemText()
  readonly #submit: () => void
  readonly element: HTMLFormElement

  constructor(send: (text: string, busy: Busy) => void, cancel: () => void) {
    this.#submit = () => {
      const text = this.#text.value
      if (text.trim() === '' || this.#text.disabled) return
      this.#text.value = ''
      this.fail('')
      send(text, this.#busy.value as Busy)
    }
    this.#cancel = button('Stop the turn', cancel, { class: 'cancel', hidden: true })
    const busy = element('label.busy', 'If a turn runs:', this.#busy)
    const row = element('div.row', busy, buttons(this.#cancel, this.#send))
    this.element = form(this.#submit, { class: 'send' }, this.#problem, this.#text, row)
  }

  /** Whether a turn can be sent, and whether one runs. */
  show(isOpen: boolean, isRunning: boolean): void {
    for (const control of [this.#text, this.#send, this.#busy]) control.disabled = !isOpen
    this.#cancel.hidden = !isOpen || !isRunning
  }

  fail(message: string): void {
    setText(this.#problem, message)
  }

  #onKey(event: KeyboardEvent): void {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
    event.preventDefault()
    this.#submit()
  }
}
