/** The open asks: what each is about, and its options. The first answer of any client counts. */
import type { SessionEvent } from '../client/index.ts'
import { detailView, shownText } from './ask-detail.ts'
import { button, buttons, element, fill, form, setText } from './element.ts'
import { duration } from './moment.ts'

type AskOpened = Extract<SessionEvent, { type: 'ask.opened' }>
type AskCard = { readonly element: HTMLElement; readonly tick: () => void }

export function questionsView(send: (ask: string, answer: unknown) => Promise<void>) {
  const view = element('div.asks', { 'aria-live': 'polite', hidden: true })
  const open = new Map<string, AskCard>()
  let isAnswerable = true

  function render(): void {
    view.hidden = open.size === 0 || !isAnswerable
    fill(view, ...Array.from(open.values(), (card) => card.element))
  }

  function card(asked: AskOpened): AskCard {
    const { ask, kind, question, detail, deadline } = asked
    const problem = element('span.problem')
    const left = element('span.muted', { 'data-left': true, 'aria-live': 'off' })
    const words = element('p', {}, shownText(question), ' ', left, ' ', problem)
    const labels = { 'data-ask': ask, 'aria-label': `Question, ${kind}` }
    const section = element('section.ask', labels, words)
    if (detail !== undefined) section.append(detailView(detail))
    const enable = (isEnabled: boolean): void => {
      for (const control of section.querySelectorAll('button')) control.disabled = !isEnabled
    }
    const answer = (value: unknown): void => {
      enable(false)
      send(ask, value).catch((error: Error) => {
        enable(true)
        setText(problem, error.message)
      })
    }
    section.append(...answerForms(asked, answer))
    const tick = (): void => setText(left, `${duration(Math.max(0, deadline - Date.now()))} left`)
    tick()
    return { element: section, tick }
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
    /** Once a second: the time that is left. */
    tick(): void {
      for (const { tick } of open.values()) tick()
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

/** Every form in which the ask takes an answer. Without options it takes any text. */
function answerForms(
  { options, accepts = [] }: AskOpened,
  answer: (value: unknown) => void,
): readonly HTMLElement[] {
  if (options === null) return [textForm('Answer', answer)]
  const forms = accepts.includes('several')
    ? [severalForm(options, answer)]
    : oneForm(options, accepts.includes('message'), answer)
  const own = accepts.includes('text')
    ? [textForm('Your own words', (text) => answer({ text }))]
    : []
  return [...forms, ...own]
}

type Options = NonNullable<AskOpened['options']>

function oneForm(options: Options, hasMessage: boolean, answer: (value: unknown) => void) {
  const message = field('message', 'Words for the agent')
  const choices = options.map(({ id, label }) => {
    const choose = (): void => {
      const words = message.value.trim()
      answer(words === '' ? id : { option: id, message: words })
    }
    return button(shownText(label), choose, { 'data-option': id })
  })
  return hasMessage ? [message, buttons(...choices)] : [buttons(...choices)]
}

function severalForm(options: Options, answer: (value: unknown) => void): HTMLElement {
  const boxes = options.map(({ id }) => element('input', { type: 'checkbox', value: id }))
  const labels = options.map(({ label }, index) =>
    element('label', boxes[index] ?? null, ' ', shownText(label)),
  )
  const submit = (): void => answer(boxes.filter((box) => box.checked).map((box) => box.value))
  return form(submit, { class: 'several' }, ...labels, element('button', 'Answer'))
}

function textForm(name: string, answer: (text: string) => void): HTMLElement {
  const input = field('answer', name)
  return form(() => answer(input.value), { class: 'buttons' }, input, element('button', 'Answer'))
}

function field(name: string, label: string): HTMLInputElement {
  return element('input', {
    ...{ name, 'aria-label': label, autocomplete: 'off' },
    placeholder: label === 'Answer' ? null : label,
  })
}
