/** The form that sends a turn, and the button that cancels the running one. */
import type { ClientTurnOptions } from '../client/index.ts'
import { button, selectField, element, form, setText } from './element.ts'

export type Busy = NonNullable<ClientTurnOptions['busy']>

const BUSY: readonly (readonly [Busy, string])[] = [
  ['queue', 'wait'],
  ['reject', 'give up'],
  ['interrupt', 'stop the running turn'],
  ['collect', 'join the waiting turns'],
]

export type ComposerOwner = {
  readonly send: (text: string, busy: Busy) => void
  readonly cancel: () => void
}

export class Composer {
  readonly element: HTMLFormElement
  readonly #owner: ComposerOwner
  readonly #text = element('textarea', {
    name: 'text',
    rows: 2,
    placeholder: 'Say something',
    'aria-label': 'What to say',
  })
  readonly #busy = selectField('busy', BUSY)
  readonly #send = element('button', { class: 'primary' }, 'Send')
  readonly #cancel: HTMLButtonElement
  readonly #problem = element('p', { class: 'problem', role: 'alert' })

  constructor(owner: ComposerOwner) {
    this.#owner = owner
    this.#cancel = button('Stop the turn', () => owner.cancel(), { class: 'cancel', hidden: true })
    const busy = element('label', { class: 'busy' }, 'If a turn runs:', this.#busy)
    const buttons = element('div', { class: 'buttons' }, this.#cancel, this.#send)
    this.element = form(
      () => this.#submit(),
      { class: 'send' },
      this.#problem,
      this.#text,
      element('div', { class: 'row' }, busy, buttons),
    )
    this.#text.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
      event.preventDefault()
      this.#submit()
    })
  }

  /** Whether a turn can be sent, and whether one runs. */
  show({ isOpen, isRunning }: { readonly isOpen: boolean; readonly isRunning: boolean }): void {
    this.#text.disabled = !isOpen
    this.#send.disabled = !isOpen
    this.#busy.disabled = !isOpen
    this.#cancel.hidden = !isOpen || !isRunning
  }

  fail(message: string): void {
    setText(this.#problem, message)
  }

  #submit(): void {
    const text = this.#text.value
    if (text.trim() === '' || this.#text.disabled) return
    this.#text.value = ''
    this.fail('')
    this.#owner.send(text, this.#busy.value as Busy)
  }
}
