/** Sessions and turns as JSON. Times are milliseconds since 1970; nothing secret is shown. */
import type { Session, SessionRow, TurnRecord } from '../core/index.ts'

export type SessionView = ReturnType<typeof sessionView>

export function sessionView(session: Session) {
  const { id, key, agent, internal, reconnect, graceMs, ttlMs, labels, seq, turns } = session
  const { createdAt, updatedAt, closed, backend, running, queued } = session
  return {
    id,
    key,
    agent,
    state: closed === null ? ('open' as const) : ('closed' as const),
    internal,
    reconnect,
    graceMs,
    ttlMs,
    labels,
    seq,
    /** How many have started. */
    turns,
    running: running?.id ?? null,
    queued: queued.map((turn) => turn.id),
    asks: session.asks.length,
    attachments: session.attachments.length,
    createdAt,
    updatedAt,
    closed,
    backend,
  }
}

export type SessionRowView = ReturnType<typeof rowView>

/** A session in a list: what is known without opening it. */
export function rowView({ id, key, agent, state, labels, seq, createdAt, updatedAt }: SessionRow) {
  return { id, key, agent, state, labels, seq, createdAt, updatedAt }
}

export type TurnView = ReturnType<typeof turnView>

/** A turn, and the session it belongs to. */
export function turnView(session: string, turn: TurnRecord) {
  const { id, state, input, reply, error, reason, queuedAt, startedAt, endedAt } = turn
  return {
    session,
    turn: { id, state, input, reply, error, reason, queuedAt, startedAt, endedAt },
  }
}
