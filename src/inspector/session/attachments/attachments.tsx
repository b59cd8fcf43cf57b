/** Present and former attachments, each with its connections as bars on a common timeline. */
import { useEffect, useMemo } from 'preact/hooks'
import { clockTime, duration, now } from '../../shared/moment.ts'
import { Empty, Tag } from '../../shared/parts.tsx'
import { shownName } from '../../shared/shown-text.ts'
import type { SessionModel } from '../session-model.ts'
import { foldAttachments, type AttachmentHistory } from './attachment-history.ts'

const ENDED_SHOWN = 12

export function Attachments({ model }: { readonly model: SessionModel }) {
  const events = model.log.events.value
  const all = useMemo(() => foldAttachments(events), [events])
  useEffect(() => void model.refresh(), [model, events])
  const info = model.info.value
  const present = all.filter(({ ended }) => ended === null)
  const past = all.filter(({ ended }) => ended !== null).slice(-ENDED_SHOWN)
  const unknown = Math.max(0, (info?.attachments.length ?? 0) - present.length)
  const from = Math.min(now.value - 1, ...all.map(({ epochs }) => epochs[0]?.from ?? now.value))
  return (
    <div class="panel-body">
      {info === null ? null : (
        <p class="muted policy">
          Reconnect policy <strong>{info.reconnect}</strong>
          {info.reconnect === 'none' ? '' : `, ${duration(info.graceMs)} grace time`}
          {info.exclusive ? ', one driver at a time' : ', any number of drivers'}. Watchers are not
          recorded.
        </p>
      )}
      {all.length === 0 && unknown === 0 ? <Empty>No clients are attached.</Empty> : null}
      <ul class="attachments">
        {[...present, ...past.reverse()].map((attachment) => (
          <Row key={attachment.id} attachment={attachment} from={from} />
        ))}
        {unknown === 0 ? null : (
          <li class="muted">
            {unknown === 1 ? '1 client' : `${unknown} clients`} attached earlier than the part of
            the log that is shown
          </li>
        )}
      </ul>
    </div>
  )
}

function Row({
  attachment,
  from,
}: {
  readonly attachment: AttachmentHistory
  readonly from: number
}) {
  const { id, role, answers, epochs } = attachment
  const connections = epochs.length === 1 ? '1 connection' : `${epochs.length} connections`
  return (
    <li data-attachment={id}>
      <div class="facts">
        <code title={id}>{shownName(id.slice(0, 8))}</code>
        <Tag>{role}</Tag>
        {answers.map((kind) => (
          <Tag key={kind}>answers {shownName(kind)}</Tag>
        ))}
        <StateTag attachment={attachment} />
        <span class="muted small">
          {connections} since {clockTime(epochs[0]?.from ?? 0)}
        </span>
      </div>
      <Connections attachment={attachment} from={from} />
    </li>
  )
}

function StateTag({ attachment: { graceUntil, ended } }: { attachment: AttachmentHistory }) {
  if (ended !== null) return <Tag>ended: {shownName(ended.reason.replaceAll('_', ' '))}</Tag>
  if (graceUntil === null) return <Tag tone="good">live</Tag>
  return (
    <Tag tone="warn">lost, may come back for {duration(Math.max(0, graceUntil - now.value))}</Tag>
  )
}

/** Decoration: the words beside it say the same. */
function Connections({
  attachment: { epochs, ended },
  from,
}: {
  readonly attachment: AttachmentHistory
  readonly from: number
}) {
  const at = now.value
  const scale = 1000 / Math.max(1, at - from)
  const bar = (kind: string, start: number, end: number) => (
    <rect
      key={`${kind} ${start}`}
      class={kind}
      x={(start - from) * scale}
      y={3}
      width={Math.max(2, (end - start) * scale)}
      height={8}
    />
  )
  const gaps = epochs.flatMap(({ to }, index) => {
    const until = epochs[index + 1]?.from ?? ended?.at ?? at
    return to === null || until <= to ? [] : [bar('gap', to, until)]
  })
  return (
    <svg viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" x={0} y={6} width={1000} height={2} />
      {gaps}
      {epochs.map(({ from: start, to }) => bar('epoch', start, to ?? at))}
    </svg>
  )
}
