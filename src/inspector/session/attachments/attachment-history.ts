/** The attachments of a session, folded from its log: each with its connections. */
import type { SessionEvent } from '../../../client/index.ts'

export type AttachmentHistory = {
  readonly id: string
  readonly role: string
  readonly answers: readonly string[]
  readonly epochs: readonly { readonly from: number; readonly to: number | null }[]
  readonly graceUntil: number | null
  readonly ended: { readonly at: number; readonly reason: string } | null
}

type Folding = Omit<
  { -readonly [Field in keyof AttachmentHistory]: AttachmentHistory[Field] },
  'epochs'
> & { readonly epochs: { readonly from: number; to: number | null }[] }

type ShownEvent = Extract<SessionEvent, { type: `attachment.${string}`; attachment: string }>

/** In the order in which they were opened. What was opened before the first event is left out. */
export function foldAttachments(events: readonly SessionEvent[]): readonly AttachmentHistory[] {
  const attachments = new Map<string, Folding>()
  for (const event of events) {
    if (!('attachment' in event) || event.type === 'ask.settled') continue
    const { attachment: id, at } = event
    if (event.type === 'attachment.opened') {
      const { role, answers } = event
      const epochs = [{ from: at, to: null }]
      attachments.set(id, { id, role, answers, epochs, graceUntil: null, ended: null })
    }
    const attachment = attachments.get(id)
    if (attachment !== undefined) fold(attachment, event)
  }
  return [...attachments.values()]
}

function fold(attachment: Folding, event: ShownEvent): void {
  const last = attachment.epochs.at(-1)
  if (last !== undefined && event.type !== 'attachment.opened') last.to ??= event.at
  attachment.graceUntil = event.type === 'attachment.detached' ? event.graceUntil : null
  if (event.type === 'attachment.ended') attachment.ended = event
  if (event.type !== 'attachment.resumed') return
  attachment.answers = event.answers ?? attachment.answers
  attachment.epochs.push({ from: event.at, to: null })
}
