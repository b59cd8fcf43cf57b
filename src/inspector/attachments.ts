/** Present and former attachments, each with its connections as bars on a common timeline. */
import type { SessionEvent } from '../client/index.ts'
import { element, fill, svgElement, tag } from './element.ts'
import { clockTime, duration } from './moment.ts'

type Span = { readonly from: number; to: number | null }

type AttachmentHistory = {
  readonly id: string
  readonly role: string
  answers: readonly string[]
  /** Its connections. */
  readonly epochs: Span[]
  graceUntil: number | null
  ended: { readonly at: number; readonly reason: string } | null
}

/** How many ended attachments are shown. */
const ENDED_SHOWN = 12

export class AttachmentsView {
  readonly element = element('div', { class: 'panel-body' })
  readonly #attachments = new Map<string, AttachmentHistory>()

  /** The number of attachments, detached ones included. */
  get count(): number {
    return [...this.#attachments.values()].filter(({ ended }) => ended === null).length
  }

  clear(): void {
    this.#attachments.clear()
    this.render()
  }

  /** Call `render` after all events. */
  event(event: SessionEvent): void {
    if (!('attachment' in event) || event.type === 'ask.settled') return
    if (event.type === 'attachment.opened') this.#attachments.set(event.attachment, opened(event))
    const attachment = this.#attachments.get(event.attachment)
    if (attachment !== undefined) fold(attachment, event)
  }

  /** Updates the times, if the panel is visible. */
  tick(): void {
    if (this.element.offsetParent !== null) this.render()
  }

  render(): void {
    const all = [...this.#attachments.values()]
    if (all.length === 0) {
      return fill(this.element, element('p', { class: 'empty' }, 'No clients are attached.'))
    }
    const from = Math.min(...all.map(({ epochs }) => epochs[0]?.from ?? Date.now()))
    const present = all.filter(({ ended }) => ended === null)
    const past = all.filter(({ ended }) => ended !== null).slice(-ENDED_SHOWN)
    const items = [...present, ...past.reverse()].map((attachment) => item(attachment, from))
    fill(this.element, element('ul', { class: 'attachments' }, ...items))
  }
}

function item(attachment: AttachmentHistory, from: number): HTMLElement {
  const { id, role, answers, epochs } = attachment
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
      stateTag(attachment),
      element(
        'span',
        { class: 'muted small' },
        `${count} ${count === 1 ? 'connection' : 'connections'} since ${since}`,
      ),
    ),
    timeline(attachment, from),
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

function fold(attachment: AttachmentHistory, event: SessionEvent): void {
  const last = attachment.epochs.at(-1)
  switch (event.type) {
    case 'attachment.detached':
      if (last !== undefined) last.to = event.at
      attachment.graceUntil = event.graceUntil
      return
    case 'attachment.resumed':
      if (last !== undefined) last.to ??= event.at
      attachment.graceUntil = null
      attachment.answers = event.answers ?? attachment.answers
      attachment.epochs.push({ from: event.at, to: null })
      return
    case 'attachment.ended':
      if (last !== undefined) last.to ??= event.at
      attachment.graceUntil = null
      attachment.ended = { at: event.at, reason: event.reason }
      return
    default:
  }
}

function stateTag({ graceUntil, ended }: AttachmentHistory): HTMLElement {
  if (ended !== null) return tag(`ended: ${ended.reason.replaceAll('_', ' ')}`)
  if (graceUntil === null) return tag('live', { 'data-tone': 'good' })
  const left = duration(Math.max(0, graceUntil - Date.now()))
  return tag(`lost, may come back for ${left}`, { 'data-tone': 'warn' })
}

/** The connections as bars, and the gaps between them. */
function timeline({ epochs, ended }: AttachmentHistory, from: number): SVGElement {
  const now = Date.now()
  const scale = 1000 / Math.max(1, now - from)
  const bar = (kind: string, start: number, end: number): SVGElement =>
    svgElement('rect', {
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
  return svgElement(
    'svg',
    { viewBox: '0 0 1000 14', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svgElement('rect', { class: 'track', x: 0, y: 6, width: 1000, height: 2 }),
    ...gaps,
    ...bars,
  )
}
