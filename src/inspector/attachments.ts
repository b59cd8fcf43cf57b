/** Who is and was attached: each with its connections as bars on a common timeline. */
import type { SessionEvent } from '../client/index.ts'
import { drawing, element, fill } from './element.ts'
import { clockTime, duration } from './moment.ts'

type Span = { readonly from: number; to: number | null }

type Holder = {
  readonly id: string
  readonly role: string
  answers: readonly string[]
  /** One for each of its connections. */
  readonly epochs: Span[]
  graceUntil: number | null
  ended: { readonly at: number; readonly reason: string } | null
}

/** Those that ended are shown too, the last so many. */
const ENDED_SHOWN = 12

export class Attachments {
  readonly element = element('div', { class: 'panel-body' })
  readonly #holders = new Map<string, Holder>()

  /** How many are attached now, lost ones that may come back included. */
  get count(): number {
    return [...this.#holders.values()].filter(({ ended }) => ended === null).length
  }

  clear(): void {
    this.#holders.clear()
    this.render()
  }

  event(event: SessionEvent): boolean {
    if (!('attachment' in event) || event.type === 'ask.settled') return false
    if (event.type === 'attachment.opened') this.#holders.set(event.attachment, opened(event))
    const holder = this.#holders.get(event.attachment)
    if (holder === undefined) return false
    fold(holder, event)
    this.render()
    return true
  }

  /** Time has passed: draws it, if anybody looks. */
  tick(): void {
    if (this.element.offsetParent !== null) this.render()
  }

  render(): void {
    const all = [...this.#holders.values()]
    if (all.length === 0) {
      return fill(this.element, element('p', { class: 'empty' }, 'Nobody is attached.'))
    }
    const from = Math.min(...all.map(({ epochs }) => epochs[0]?.from ?? Date.now()))
    const present = all.filter(({ ended }) => ended === null)
    const past = all.filter(({ ended }) => ended !== null).slice(-ENDED_SHOWN)
    const items = [...present, ...past.reverse()].map((holder) => item(holder, from))
    fill(this.element, element('ul', { class: 'attachments' }, ...items))
  }
}

function item(holder: Holder, from: number): HTMLElement {
  const { id, role, answers, epochs } = holder
  const count = epochs.length
  const since = clockTime(epochs[0]?.from ?? 0)
  return element(
    'li',
    { 'data-attachment': id },
    element(
      'div',
      { class: 'facts' },
      element('code', { title: id }, id.slice(0, 8)),
      tag(role),
      ...answers.map((kind) => tag(`answers ${kind}`)),
      stateTag(holder),
      element(
        'span',
        { class: 'muted small' },
        `${count} ${count === 1 ? 'connection' : 'connections'} since ${since}`,
      ),
    ),
    timeline(holder, from),
  )
}

function opened({ attachment, role, answers, at }: SessionEvent & { type: 'attachment.opened' }) {
  return {
    id: attachment,
    role,
    answers,
    epochs: [{ from: at, to: null }],
    graceUntil: null,
    ended: null,
  }
}

function fold(holder: Holder, event: SessionEvent): void {
  const last = holder.epochs.at(-1)
  switch (event.type) {
    case 'attachment.detached':
      if (last !== undefined) last.to = event.at
      holder.graceUntil = event.graceUntil
      return
    case 'attachment.resumed':
      if (last !== undefined) last.to ??= event.at
      holder.graceUntil = null
      holder.answers = event.answers ?? holder.answers
      holder.epochs.push({ from: event.at, to: null })
      return
    case 'attachment.ended':
      if (last !== undefined) last.to ??= event.at
      holder.graceUntil = null
      holder.ended = { at: event.at, reason: event.reason }
      return
    default:
  }
}

function tag(text: string, tone: string | null = null): HTMLElement {
  return element('span', { class: 'tag', 'data-tone': tone }, text)
}

function stateTag({ graceUntil, ended }: Holder): HTMLElement {
  if (ended !== null) return tag(`ended: ${ended.reason.replaceAll('_', ' ')}`)
  if (graceUntil === null) return tag('live', 'good')
  return tag(`lost, may come back for ${duration(Math.max(0, graceUntil - Date.now()))}`, 'warn')
}

/** The connections as bars; between them, and while it is lost, the time without one. */
function timeline({ epochs, ended }: Holder, from: number): SVGElement {
  const now = Date.now()
  const scale = 1000 / Math.max(1, now - from)
  const bar = (kind: string, start: number, end: number): SVGElement =>
    drawing('rect', {
      class: kind,
      x: (start - from) * scale,
      y: 3,
      width: Math.max(2, (end - start) * scale),
      height: 8,
    })
  const gaps = epochs.flatMap(({ to }, index) => {
    const until = epochs[index + 1]?.from ?? ended?.at ?? now
    return to === null || until <= to ? [] : [bar('gap', to, until)]
  })
  const bars = epochs.map(({ from: start, to }) => bar('epoch', start, to ?? now))
  return drawing(
    'svg',
    { viewBox: '0 0 1000 14', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    drawing('rect', { class: 'track', x: 0, y: 6, width: 1000, height: 2 }),
    ...gaps,
    ...bars,
  )
}
