/** Present and former attachments, each with its connections as bars on a common timeline. */
import { useEffect, useMemo } from 'preact/hooks'
import type { SessionView } from '../../../wire/views.ts'
import { clockTime, duration, now, plural } from '../../shared/moment.ts'
import { Empty, Tag } from '../../shared/parts.tsx'
import { shownName } from '../../shared/shown-text.ts'
import type { SessionModel } from '../session-model.ts'
import { foldAttachments, type AttachmentHistory } from './attachment-history.ts'

const ENDED_SHOWN = 12

type Present = SessionView['attachments'][number]

export function Attachments({ model }: { readonly model: SessionModel }) {
  const events = model.log.events.value
  const all = useMemo(() => foldAttachments(events), [events])
  const at = now.value
  // How far each client has come is in no event.
  useEffect(() => void model.refresh(), [model, events, at])
  const info = model.info.value
  const present = withHistory(info?.attachments ?? [], all)
  const past = all.filter(({ ended }) => ended !== null).slice(-ENDED_SHOWN)
  const from = Math.min(at - 1, ...all.map(({ epochs }) => epochs[0]?.from ?? at))
  return (
    <div class="panel-body">
      {info === null ? null : <Policy info={info} />}
      {present.length + past.length === 0 ? <Empty>No clients are attached.</Empty> : null}
      <ul class="attachments">
        {present.map(({ client, history }, index) => (
          <PresentRow
            key={history?.id ?? index}
            {...{ client, history, from }}
            seq={info?.seq ?? 0}
          />
        ))}
        {past.reverse().map((attachment) => (
          <PastRow key={attachment.id} attachment={attachment} from={from} />
        ))}
      </ul>
    </div>
  )
}

type PresentClient = {
  readonly client: Present
  readonly history: AttachmentHistory | undefined
}

/**
 * The server's list of clients has no ids. Both lists are in the order in which they were opened,
 * and of those that were opened first the events may not be known.
 */
function withHistory(
  clients: readonly Present[],
  all: readonly AttachmentHistory[],
): readonly PresentClient[] {
  const open = all.filter(({ ended }) => ended === null)
  return clients.map((client, index) => {
    const history = open.at(index - clients.length)
    return { client, history: history?.epochs.length === client.epoch ? history : undefined }
  })
}

function Policy({ info }: { readonly info: SessionView }) {
  const { reconnect, graceMs, exclusive, watchers } = info
  return (
    <p class="muted policy">
      Reconnect policy <strong>{reconnect}</strong>
      {reconnect === 'none' ? '' : `, ${duration(graceMs)} grace time`}
      {exclusive ? ', one driver at a time' : ', any number of drivers'}.{' '}
      {watchers === null ? 'Watchers' : `${plural(watchers, 'watcher')} now; watchers`} are not
      recorded.
    </p>
  )
}

type PresentRowProps = {
  readonly client: Present
  /** The position of the last event. */
  readonly seq: number
  readonly history: AttachmentHistory | undefined
  readonly from: number
}

function PresentRow({ client, seq, history, from }: PresentRowProps) {
  const { role, answers, state, graceUntil, epoch, cursor } = client
  const left = duration(Math.max(0, (graceUntil ?? 0) - now.value))
  const since = history?.epochs[0]?.from
  return (
    <li data-attachment={history?.id}>
      <div class="facts">
        {history === undefined ? null : (
          <code title={history.id}>{shownName(history.id.slice(0, 8))}</code>
        )}
        <Tag>{role}</Tag>
        {answers.map((kind) => (
          <Tag key={kind}>answers {shownName(kind)}</Tag>
        ))}
        {state === 'live' ? (
          <Tag tone="good">live</Tag>
        ) : (
          <Tag tone="warn">lost, may come back for {left}</Tag>
        )}
        <span class="muted small">
          {plural(epoch, 'connection')}
          {since === undefined ? '' : ` since ${clockTime(since)}`}
        </span>
        <Cursor cursor={cursor} seq={seq} />
      </div>
      {history === undefined ? null : <Connections attachment={history} from={from} />}
    </li>
  )
}

/** How much of the log the client has been given. */
function Cursor({ cursor, seq }: { readonly cursor: number | null; readonly seq: number }) {
  if (cursor === null) return <span class="muted small">does not follow the log now</span>
  const lag = Math.max(0, seq - cursor)
  return (
    <span class="muted small" data-lag={String(lag)}>
      {lag === 0
        ? `has all ${plural(seq, 'event')}`
        : `at event ${cursor.toLocaleString()}, ${plural(lag, 'event')} behind`}
    </span>
  )
}

type PastRowProps = { readonly attachment: AttachmentHistory; readonly from: number }

function PastRow({ attachment, from }: PastRowProps) {
  const { id, role, epochs, ended } = attachment
  return (
    <li data-attachment={id}>
      <div class="facts">
        <code title={id}>{shownName(id.slice(0, 8))}</code>
        <Tag>{role}</Tag>
        <Tag>ended: {shownName((ended?.reason ?? '').replaceAll('_', ' '))}</Tag>
        <span class="muted small">
          {plural(epochs.length, 'connection')} since {clockTime(epochs[0]?.from ?? 0)}
        </span>
      </div>
      <Connections attachment={attachment} from={from} />
    </li>
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
