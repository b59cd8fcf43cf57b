/** A session as one row of a list. */
import type { SessionRowView } from '../../wire/views.ts'
import { Ago, Labels, SessionName, Status } from '../shared/parts.tsx'
import { sessionHref } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'

export function SessionRow({ row }: { readonly row: SessionRowView }) {
  const { id, key, agent, status, state, labels, attached, updatedAt, queuedTurns } = row
  const isQueueing = queuedTurns > 0 && (status === 'running' || status === 'queued')
  return (
    <a
      class="session-row"
      href={sessionHref(id)}
      data-session={id}
      data-state={state}
      data-status={status}
    >
      <Status status={status}>
        {isQueueing
          ? `${status === 'queued' ? '' : `${status}, `}queued ${queuedTurns}`
          : undefined}
      </Status>
      <span class="cell-name">
        <SessionName id={id} name={key} />
      </span>
      <span class="cell-agent muted">{shownName(agent)}</span>
      <span class="cell-labels">
        <Labels labels={labels} />
      </span>
      <span class="cell-clients muted">
        {attached === 0 ? null : (
          <span title={`${attached} attached`}>
            {attached.toLocaleString()}
            <span class="seen-only-by-readers"> attached</span>
          </span>
        )}
      </span>
      <span class="cell-age muted">
        <Ago at={updatedAt} />
      </span>
    </a>
  )
}
