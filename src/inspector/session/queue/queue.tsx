/** What waits for its turn in this session, and why. */
import { useEffect, useState } from 'preact/hooks'
import { principalText } from '../../../wire/views.ts'
import { beginningOf } from '../../shared/clipped.tsx'
import { clockTime, duration, fullTime, now } from '../../shared/moment.ts'
import { Button, Empty, Problem, Tag } from '../../shared/parts.tsx'
import { sessionHref } from '../../shared/router.ts'
import { ApiError, api } from '../../shared/server.ts'
import { shownName, shownText } from '../../shared/shown-text.ts'
import type { QueueEntry, SessionModel } from '../session-model.ts'
import { dragProps, MoveButtons, useMover, type Mover } from './moving.tsx'
import { whyItWaits } from './why.ts'

const MODES = { queue: null, interrupt: 'stops the running turn', collect: 'joins others' } as const

const MEANINGS = {
  waiting: 'Not admitted yet: its caller waits, and may still be refused',
  queued: 'In the log: it survives a crash',
} as const

export function Queue({ model }: { readonly model: SessionModel }) {
  const rows = model.queue.value
  const [problem, setProblem] = useState('')
  useEffect(() => void model.refresh(), [model])
  const running = model.running.value
  const mover = useMover(model, rows, setProblem)
  return (
    <div class="panel-body queue">
      <section class="queue-running">
        <h2>Running</h2>
        {running === null ? <Empty>No turn runs.</Empty> : <Running model={model} turn={running} />}
      </section>
      <section>
        <h2>Waiting for their turn{rows.length === 0 ? '' : ` (${rows.length})`}</h2>
        {problem === '' ? null : <Problem>{problem}</Problem>}
        {rows.length === 0 ? <Empty>Nothing waits.</Empty> : null}
        <ol>
          {rows.map((row) => (
            <QueueRow key={idOf(row)} row={row} model={model} fail={setProblem} mover={mover} />
          ))}
        </ol>
        <p class="seen-only-by-readers" role="status">
          {mover.said}
        </p>
      </section>
    </div>
  )
}

function Running({ model, turn }: { readonly model: SessionModel; readonly turn: string }) {
  const view = model.log.turn(turn)?.view.value
  const startedAt = view?.startedAt ?? null
  const input = view?.input ?? null
  const text = input === null ? '' : typeof input === 'string' ? input : input.text
  return (
    <p class="running-turn">
      <a href={sessionHref(model.id, undefined, { turn })} class="mono">
        {turn}
      </a>
      <span class="running-text">{shownName(beginningOf(text))}</span>
      {startedAt === null ? null : (
        <span class="muted" title={fullTime(startedAt)}>
          for {duration(Math.max(0, now.value - startedAt))}
        </span>
      )}
    </p>
  )
}

const idOf = (row: QueueEntry): string => (row.state === 'queued' ? row.turn : row.request)

type QueueRowProps = {
  readonly row: QueueEntry
  readonly model: SessionModel
  readonly fail: (problem: string) => void
  readonly mover: Mover
}

function QueueRow({ row, model, fail, mover }: QueueRowProps) {
  const { position, since, state, by, busy } = row
  const id = idOf(row)
  const mode = MODES[busy]
  const input = model.log.turn(id)?.view.value.input ?? null
  const text = input === null ? null : typeof input === 'string' ? input : input.text
  const isOwn = mover.own.includes(id)
  return (
    <li data-id={id} data-state={state} {...dragProps(isOwn ? id : null, mover)}>
      <span class="seq">{position}</span>
      <Tag title={MEANINGS[state]}>{state}</Tag>
      {mode === null ? null : <Tag>{mode}</Tag>}
      <code title={id}>{shownName(id.slice(0, 8))}</code>
      <span class="muted small" title={since === null ? undefined : fullTime(since)}>
        {since === null ? '' : `since ${clockTime(since)} `}by{' '}
        {shownName(principalText(by) ?? 'unknown')}
      </span>
      <span class="buttons">
        {isOwn && mover.own.length > 1 ? <MoveButtons turn={id} mover={mover} /> : null}
        {model.may('talk') ? <CancelButton id={id} model={model} fail={fail} /> : null}
      </span>
      {text === null ? null : <p class="queue-text">{shownText(beginningOf(text))}</p>}
      <p class="queue-why">
        <strong>Why is it waiting?</strong> {whyItWaits(row, reasonsOf(model))}
      </p>
    </li>
  )
}

function reasonsOf(model: SessionModel) {
  const running = model.running.value
  const startedAt = running === null ? null : model.log.turn(running)?.view.value.startedAt
  const ask = model.asks.value[0]
  return {
    running,
    runsForMs: startedAt === null || startedAt === undefined ? null : now.value - startedAt,
    question: ask === undefined ? null : shownText(ask.question),
    now: now.value,
  }
}

function CancelButton({
  id,
  model,
  fail,
}: Pick<QueueRowProps, 'model' | 'fail'> & { readonly id: string }) {
  const [isPressed, setPressed] = useState(false)
  const cancel = async (): Promise<void> => {
    setPressed(true)
    fail('')
    try {
      await api.cancel(model.id, id)
    } catch (error) {
      // An entry that has left the queue meanwhile disappears from the list.
      const hasLeft = error instanceof ApiError && error.code === 'turn_unknown'
      if (!hasLeft) fail((error as Error).message)
      setPressed(false)
    }
    await model.refresh()
  }
  return (
    <Button label={`Cancel ${id}`} disabled={isPressed} onClick={() => void cancel()}>
      {isPressed ? 'Cancelling…' : 'Cancel'}
    </Button>
  )
}
