/**
 * Sessions, turns and events as JSON, or in a few words. Times are milliseconds since 1970; nothing
 * secret is shown.
 */
import type {
  AskOutcome,
  Attachment,
  ChangePage,
  InboxEvent,
  Link,
  ListCount,
  OpenAsk,
  Origin,
  Overview,
  Principal,
  SessionEvent,
  SessionRow,
  TurnRecord,
} from '../core/index.ts'

/** Where the HTTP API has a session. */
export function sessionPath(id: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}`
}

export type SessionView = ReturnType<typeof sessionView>

/** `presence`: whether its reader sees the clients, of which there may be many. */
export function sessionView(
  { session, queue, watchers, cursorOf }: Overview,
  { presence = true }: { readonly presence?: boolean } = {},
) {
  const attachments = presence ? session.attachments : []
  const { id, key, agent, internal, reconnect, exclusive, graceMs, ttlMs, labels } = session
  const { seq, turns, createdAt, updatedAt, closed, backend, running, principal } = session
  const { settings, grants, plan, commands, usage, origin } = session
  return {
    id,
    principal,
    key,
    agent,
    state: closed === null ? ('open' as const) : ('closed' as const),
    internal,
    reconnect,
    exclusive,
    graceMs,
    ttlMs,
    labels,
    seq,
    /** How many have started. */
    turns,
    running: running?.id ?? null,
    queued: queue,
    asks: session.asks.length,
    attachments: attachments.map((attachment) =>
      attachmentView(attachment, cursorOf(attachment.id)),
    ),
    watchers: presence ? watchers : null,
    createdAt,
    updatedAt,
    closed,
    backend,
    settings,
    grants,
    plan,
    commands,
    usage,
    origin: origin === null ? null : originView(origin),
  }
}

function originView({ session, turn, backend }: Origin) {
  return { session: session ?? null, turn: turn ?? null, backend }
}

/** A client that holds a session, without what would let another one impersonate it. */
function attachmentView(attachment: Attachment, cursor: number | null) {
  const { role, answers, state, graceUntil, epoch } = attachment
  return { role, answers, state, graceUntil, epoch, cursor }
}

export function linkView({ id, scopes, expiresAt, uses }: Link) {
  return { id, scopes, expiresAt, uses }
}

export type SessionRowView = ReturnType<typeof rowView>

/** A session in a list: what is known without opening it. */
export function rowView(row: SessionRow) {
  const { id, principal, key, agent, state, status, queuedTurns, attached, labels } = row
  const { seq, createdAt, updatedAt } = row
  return {
    id,
    principal,
    key,
    agent,
    state,
    status,
    queuedTurns,
    attached,
    labels,
    seq,
    createdAt,
    updatedAt,
  }
}

export type SessionListView = {
  readonly sessions: readonly SessionRowView[]
  readonly nextCursor: string | null
  /** If it was asked for. */
  readonly count?: ListCount
}

export type EventPageView = {
  readonly events: readonly SessionEvent[]
  readonly nextAfter: number
  /** Of a page by `before`. */
  readonly nextBefore?: number
  readonly hasMore: boolean
}

export function changesView({ changes, position }: ChangePage) {
  const shown = changes.map(({ after, seq, row }) => ({ after, seq, session: rowView(row) }))
  return { changes: shown, position }
}

export type OpenAskView = ReturnType<typeof openAskView>

/** An ask that waits, with what tells its session from others. */
export function openAskView({ ask, openedAt, row }: OpenAsk) {
  return { ...ask, openedAt, session: askedSession(row) }
}

export type OpenAskListView = {
  readonly asks: readonly OpenAskView[]
  readonly nextCursor: string | null
}

export type SettledAskView = ReturnType<typeof settledAskView>

export function settledAskView(event: InboxEvent & { readonly type: 'ask.settled' }) {
  const { ask: id, outcome, settledAt, row } = event
  return { id, ...outcome, settledAt, session: askedSession(row) }
}

function askedSession({ id, key, agent, labels, principal }: SessionRow) {
  return { id, key, agent, labels, principal }
}

export function turnView(session: string, turn: TurnRecord) {
  const { id, state, input, reply, error, reason, by, queuedAt, startedAt, endedAt, usage } = turn
  return {
    session,
    turn: { id, state, input, reply, error, reason, by, queuedAt, startedAt, endedAt, usage },
  }
}

/**
 * A principal on one line: `local`, `token k3J…`, `jwt https://id.example 42`. Null where an event
 * names none; in logs of 0.1.0 an answer names its attachment.
 */
export function principalText(by: Principal | string | null | undefined): string | null {
  if (by === null || by === undefined) return null
  if (typeof by === 'string') return `attachment ${by}`
  const { kind, issuer, id } = by
  if (kind === 'local' && id === 'default') return kind
  return issuer === 'holdfast' ? `${kind} ${id}` : `${kind} ${issuer} ${id}`
}

/**
 * An event of a log in a few words, for people: its main fields, and the principal behind it unless
 * that is the local user. Texts are quoted, so that line breaks show.
 */
export function eventSummary(event: SessionEvent): string {
  const by = 'by' in event ? principalText(event.by) : null
  const parts = [mainFields(event), by === null || by === 'local' ? '' : `by ${by}`]
  return parts.filter((part) => part !== '').join('  ')
}

function mainFields(event: SessionEvent): string {
  switch (event.type) {
    case 'session.created':
      return `${event.agent}${event.key === null ? '' : ` ${JSON.stringify(event.key)}`}`
    case 'session.bound':
      return event.backend
    case 'session.configured':
      return JSON.stringify(event.settings)
    case 'session.granted':
    case 'session.ungranted':
      return event.grants.map(({ label }) => label).join(', ')
    case 'turn.queued':
    case 'turn.joined':
    case 'turn.steering':
    case 'turn.steered':
    case 'turn.started':
      return JSON.stringify(typeof event.input === 'string' ? event.input : event.input.text)
    case 'message.added':
    case 'turn.output':
      return JSON.stringify(event.text)
    case 'turn.failed':
      return `${event.error.code}: ${event.error.message}`
    case 'ask.opened':
      return `${event.ask} ${JSON.stringify(event.question)}`
    case 'ask.settled':
      return `${event.ask} ${settledWords(event)}`
    case 'link.created':
      return event.scopes.join(', ')
    default:
      return otherFields(event)
  }
}

/** Of other events: the attachment or link, then a reason, kind or role. */
/** How an ask ended, and what decided if no person did. */
export function settledWords(event: AskOutcome): string {
  if (event.outcome !== 'answered') return event.outcome
  const { answer, rule, grant } = event
  const decider = rule === undefined ? grant : `rule ${rule}`
  return `answered: ${JSON.stringify(answer)}${decider === undefined ? '' : ` (${decider})`}`
}

function otherFields(event: SessionEvent): string {
  const { attachment, link, reason, kind, role } = event as Readonly<Record<string, unknown>>
  const id = typeof attachment === 'string' ? attachment.slice(0, 6) : link
  const texts = [id, reason ?? kind ?? role].filter((field) => typeof field === 'string')
  return texts.join(' ')
}
