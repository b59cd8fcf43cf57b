/** The open asks, each with its options as buttons. The first answer of any client counts. */
import type { SessionEvent } from '../client/index.ts'
import { button, buttons, element, fill, form, setText } from './element.ts'

type AskOpened = Extract<SessionEvent, { type: 'ask.opened' }>

export function questionsView(send: (ask: string, answer: unknown) => Promise<void>) {
  const view = element('div.asks', { 'aria-live': 'polite', hidden: true })
  const open = new Map<string, HTMLElement>()
  let isAnswerable = true

  function render(): void {
    view.hidden = open.size === 0 || !isAnswerable
    fill(view, ...open.values())
  }

  function card({ ask, kind, question, options }: AskOpened): HTMLElement {
    const problem = element('span.problem')
    const words = element('p', {}, question, ' ', problem)
    const labels = { 'data-ask': ask, 'aria-label': `Question, ${kind}` }
    const section = element('section.ask', labels, words)
    const enable = (isEnabled: boolean): void => {
      for (const option of section.querySelectorAll('button')) option.disabled = !isEnabled
    }
    const answer = (value: unknown): void => {
      enable(false)
      send(ask, value).catch((error: Error) => {
        enable(true)
        setText(problem, error.message)
      })
    }
    const choices = options?.map(({ id, label }) =>
      button(label, () => answer(id), { 'data-option': id }),
    )
    section.append(choices === undefined ? freeAnswer(answer) : buttons(...choices))
    return section
  }

  return {
    element: view,
    clear(): void {
      open.clear()
      render()
    },
    show(isOpen: boolean): void {
      isAnswerable = isOpen
      render()
    },
    event(event: SessionEvent): void {
      if (event.type === 'ask.opened') open.set(event.ask, card(event))
      else if (event.type === 'ask.settled') open.delete(event.ask)
      else if (event.type === 'session.closed') open.clear()
      else return
      render()
    },
  }
}

/** An ask without options accepts any text. */
function freeAnswer(answer: (value: unknown) => void): HTMLElement {
  const input = element('input', { name: 'answer', 'aria-label': 'Answer', autocomplete: 'off' })
  const send = element('button', 'Answer')
  return form(() => answer(input.value), { class: 'buttons' }, input, send)
}
