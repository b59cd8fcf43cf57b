/** Present and former attachments, each with its connections as bars on a common timeline. */
import type { SessionEvent } from '../client/index.ts'
import { element, fill, svgElement, tag } from './element.ts'
import { clockTime, duration } from './moment.ts'

type AttachmentHistory = {
  readonly id: string
  readonly role: string
  answers: readonly string[]
  readonly epochs: { readonly from: number; to: number | null }[]
  graceUntil: number | null
  ended: { readonly at: number; readonly reason: string } | null
}

type ShownEvent = Extract<SessionEvent, { type: `attachment.${string}`; attachment: string }>

const ENDED_SHOWN = 12

export function attachmentsView() {
  const view = element('div.panel-body')
  const attachments = new Map<string, AttachmentHistory>()

  function render(): void {
    const all = [...attachments.values()]
    if (all.length === 0) return fill(view, element('p.empty', 'No clients are attached.'))
    const from = Math.min(...all.map(({ epochs }) => epochs[0]?.from ?? Date.now()))
    const present = all.filter(({ ended }) => ended === null)
    const past = all.filter(({ ended }) => ended !== null).slice(-ENDED_SHOWN)
    const items = [...present, ...past.reverse()].map((attachment) => item(attachment, from))
    fill(view, element('ul.attachments', ...items))
  }

  return {
    element: view,
    render,
    /** The number of attachments, detached ones included. */
    count: () => [...attachments.values()].filter(({ ended }) => ended === null).length,
    clear(): void {
      attachments.clear()
      render()
    },
    /** Call `render` after all events. */
    event(event: SessionEvent): void {
      if (!('attachment' in event) || event.type === 'ask.settled') return
      const { attachment: id, at } = event
      if (event.type === 'attachment.opened') {
        const { role, answers } = event
        const epochs = [{ from: at, to: null }]
        attachments.set(id, { id, role, answers, epochs, graceUntil: null, ended: null })
      }
      const attachment = attachments.get(id)
      if (attachment !== undefined) fold(attachment, event)
    },
    tick(): void {
      if (view.offsetParent !== null) render()
    },
  }
}

function item(attachment: AttachmentHistory, from: number): HTMLElement {
  const { id, role, answers, epochs } = attachment
  const connections = epochs.length === 1 ? '1 connection' : `${epochs.length} connections`
  const since = clockTime(epochs[0]?.from ?? 0)
  const facts = element(
    'div.facts',
    element('code', { title: id }, id.slice(0, 8)),
    tag(role),
    ...answers.map((kind) => tag(`answers ${kind}`)),
    stateTag(attachment),
    element('span.muted.small', `${connections} since ${since}`),
  )
  return element('li', { 'data-attachment': id }, facts, timeline(attachment, from))
}

function fold(attachment: AttachmentHistory, event: ShownEvent): void {
  const last = attachment.epochs.at(-1)
  if (last !== undefined && event.type !== 'attachment.opened') last.to ??= event.at
  attachment.graceUntil = event.type === 'attachment.detached' ? event.graceUntil : null
  if (event.type === 'attachment.ended') attachment.ended = event
  if (event.type !== 'attachment.resumed') return
  attachment.answers = event.answers ?? attachment.answers
  attachment.epochs.push({ from: event.at, to: null })
}

function stateTag({ graceUntil, ended }: AttachmentHistory): HTMLElement {
  if (ended !== null) return tag(`ended: ${ended.reason.replaceAll('_', ' ')}`)
  if (graceUntil === null) return tag('live', { 'data-tone': 'good' })
  const left = duration(Math.max(0, graceUntil - Date.now()))
  return tag(`lost, may come back for ${left}`, { 'data-tone': 'warn' })
}

function timeline({ epochs, ended }: AttachmentHistory, from: number): SVGElement {
  const now = Date.now()
  const scale = 1000 / Math.max(1, now - from)
  const bar = (kind: string, start: number, end: number): SVGElement => {
    const width = Math.max(2, (end - start) * scale)
    return svgElement('rect', { class: kind, x: (start - from) * scale, y: 3, width, height: 8 })
  }
  const gaps = epochs.flatMap(({ to }, index) => {
    const until = epochs[index + 1]?.from ?? ended?.at ?? now
    return to === null || until <= to ? [] : [bar('gap', to, until)]
  })
  const bars = epochs.map(({ from: start, to }) => bar('epoch', start, to ?? now))
  const track = svgElement('rect', { class: 'track', x: 0, y: 6, width: 1000, height: 2 })
  const box = { viewBox: '0 0 1000 14', preserveAspectRatio: 'none', 'aria-hidden': 'true' }
  return svgElement('svg', box, track, ...gaps, ...bars)
}
