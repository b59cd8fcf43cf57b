/** The open asks: what each is about, and its options. The first answer of any client counts. */
import type { SessionEvent } from '../client/index.ts'
import { objectIn } from '../wire/answers.ts'
import { printableJson } from '../wire/printable.ts'
import { detailView, shownText } from './ask-detail.ts'
import { button, buttons, element, fill, form, setText } from './element.ts'
import { duration } from './moment.ts'

type AskOpened = Extract<SessionEvent, { type: 'ask.opened' }>
type AskCard = { readonly element: HTMLElement; readonly tick: () => void }

export function questionsView(
  send: (ask: string, answer: unknown) => Promise<void>,
  mayEdit: () => boolean,
) {
  const view = element('div.asks', { 'aria-live': 'polite', hidden: true })
  const open = new Map<string, AskCard>()
  let isAnswerable = true

  function render(): void {
    view.hidden = open.size === 0 || !isAnswerable
    fill(view, ...Array.from(open.values(), (card) => card.element))
  }

  function card(asked: AskOpened): AskCard {
    const { ask, kind, question, detail, deadline, accepts = [] } = asked
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
    const fail = (message: string): void => setText(problem, message)
    const edited = mayEdit() && accepts.includes('input') ? editor(detail?.input, fail) : null
    section.append(...answerForms(asked, { answer, edited }))
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

/** How an answer is given, and with which other arguments; null: with none. */
type Answering = {
  readonly answer: (value: unknown) => void
  readonly edited: Editor | null
}

/** Every form in which the ask takes an answer. Without options it takes any text. */
function answerForms(
  { options, accepts = [] }: AskOpened,
  { answer, edited }: Answering,
): readonly HTMLElement[] {
  if (options === null) return [textForm('Answer', answer)]
  const forms = accepts.includes('several')
    ? [severalForm(options, answer)]
    : oneForm(options, accepts.includes('message'), { answer, edited })
  const own = accepts.includes('text')
    ? [textForm('Your own words', (text) => answer({ text }))]
    : []
  return [...forms, ...own]
}

type Options = NonNullable<AskOpened['options']>

function oneForm(options: Options, hasMessage: boolean, { answer, edited }: Answering) {
  const message = field('message', 'Words for the agent')
  const choices = options.map(({ id, label }) => {
    const choose = (): void => {
      const words = message.value.trim()
      const input = edited?.read()
      if (input === null) return
      const more = { ...(words && { message: words }), ...(input && { input }) }
      answer(Object.keys(more).length === 0 ? id : { option: id, ...more })
    }
    return button(shownText(label), choose, { 'data-option': id })
  })
  const editing = edited === null ? [] : [edited.element]
  return [...editing, ...(hasMessage ? [message] : []), buttons(...choices)]
}

type Editor = {
  readonly element: HTMLElement
  /** The changed arguments; undefined: they are as they were; null: they are no JSON object. */
  readonly read: () => object | null | undefined
}

/** The arguments of what is asked, to be changed. A part of them that was left out cannot be. */
function editor(input: unknown, fail: (message: string) => void): Editor | null {
  if (input === undefined) return null
  const text = element('textarea', { name: 'input', rows: 6, 'aria-label': 'Arguments as JSON' })
  const lines = JSON.stringify(input, null, 2).split('\n')
  const asked = lines.map(printableJson).join('\n')
  text.value = asked
  const view = element('details.edit', element('summary', 'Change the arguments'), text)
  const read = (): object | null | undefined => {
    if (text.value === asked) return undefined
    const changed = objectIn(text.value)
    if (changed === null) fail('The arguments must be a JSON object.')
    return changed
  }
  return { element: view, read }
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
