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

export function composer(send: (text: string, busy: Busy) => void, cancel: () => void) {
  const words = { placeholder: 'Say something', 'aria-label': 'What to say' }
  const text = element('textarea', { name: 'text', rows: 2, ...words })
  const busy = selectField('busy', BUSY)
  const submit = element('button.primary', 'Send')
  const stop = button('Stop the turn', cancel, { class: 'cancel', hidden: true })
  const problem = problemText()
  const fail = (message: string): void => setText(problem, message)
  const onSubmit = (): void => {
    const { value } = text
    if (value.trim() === '' || text.disabled) return
    text.value = ''
    fail('')
    send(value, busy.value as Busy)
  }
  text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
    event.preventDefault()
    onSubmit()
  })
  const label = element('label.busy', 'If a turn runs:', busy)
  const row = element('div.row', label, buttons(stop, submit))
  return {
    element: form(onSubmit, { class: 'send' }, problem, text, row),
    fail,
    show(isOpen: boolean, isRunning: boolean): void {
      for (const control of [text, submit, busy]) control.disabled = !isOpen
      stop.hidden = !isOpen || !isRunning
    },
  }
}
