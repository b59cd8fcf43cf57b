/** The send box: what to say, what to do if the session is busy, and how to stop what runs. */
import type { ClientTurnOptions } from '../client/index.ts'
import { choice, element, say } from './element.ts'

export type Busy = NonNullable<ClientTurnOptions['busy']>

const BUSY: readonly (readonly [Busy, string])[] = [
  ['queue', 'wait'],
  ['reject', 'give up'],
  ['interrupt', 'stop what runs'],
  ['collect', 'join those that wait'],
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
  readonly #busy = choice('busy', BUSY)
  readonly #send = element('button', { class: 'primary' }, 'Send')
  readonly #cancel: HTMLButtonElement
  readonly #problem = element('p', { class: 'problem', role: 'alert' })

  constructor(owner: ComposerOwner) {
    this.#owner = owner
    this.#cancel = element(
      'button',
      { type: 'button', class: 'cancel', hidden: true, onclick: () => owner.cancel() },
      'Stop the turn',
    )
    const busy = element('label', { class: 'busy' }, 'If a turn runs:', this.#busy)
    const buttons = element('div', { class: 'buttons' }, this.#cancel, this.#send)
    this.element = element(
      'form',
      {
        class: 'send',
        onsubmit: (event) => {
          event.preventDefault()
          this.#submit()
        },
      },
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

  /** Whether anything can be sent, and whether there is something to stop. */
  show({ isOpen, isRunning }: { readonly isOpen: boolean; readonly isRunning: boolean }): void {
    this.#text.disabled = !isOpen
    this.#send.disabled = !isOpen
    this.#busy.disabled = !isOpen
    this.#cancel.hidden = !isOpen || !isRunning
  }

  fail(message: string): void {
    say(this.#problem, message)
  }

  focus(): void {
    this.#text.focus()
  }

  #submit(): void {
    const text = this.#text.value
    if (text.trim() === '' || this.#text.disabled) return
    this.#text.value = ''
    this.fail('')
    this.#owner.send(text, this.#busy.value as Busy)
  }
}
