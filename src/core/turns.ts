/** Turns: what `decide` and `evolve` do for them, and how a turn is read back from the log. */
import { HoldfastError } from './errors.ts'
import { STATE_LIMITS } from './limits.ts'
import { distinct, recordedBy, type Principal } from './principal.ts'
import type { Reply } from './runner.ts'
import type { Draft, Folding, Session, SessionEvent } from './session.ts'
import { withdrawAsks } from './asks.ts'

/**
 * What a turn is given: a text, or an object with a text and whatever else its agent understands.
 */
export type Input = string | { readonly text: string; readonly [field: string]: unknown }

/**
 * A caller's name for a request, and a digest of its body: the same key with another body is a
 * mistake.
 */
export type RequestKey = { readonly key: string; readonly digest: string }

/** A turn that waits or runs. Its id is `t` and the seq of the event that admitted it. */
export type Turn = {
  readonly id: string
  readonly input: Input
  readonly keys: readonly RequestKey[]
  /** Others may join it while it waits. */
  readonly collect: boolean
  /** When it stops waiting, or null. */
  readonly expiresAt: number | null
  /** Null in logs of 0.1.0, which did not record it. */
  readonly by: Principal | null
  /** When it began to wait; null if it did not have to. */
  readonly queuedAt: number | null
}

export type TurnState =
  | 'queued'
  | 'running'
  | 'done'
  | 'failed'
  | 'cancelled'
  | 'interrupted'
  | 'expired'

export type TurnError = { readonly code: string; readonly message: string }

/** How a turn ends. A reply that was cut short is kept as a partial message. */
export type TurnEnd =
  | { readonly state: 'done'; readonly reply: Reply | null }
  | { readonly state: 'failed'; readonly error: TurnError; readonly reply: Reply | null }
  | {
      readonly state: 'cancelled'
      readonly reason: string
      readonly by: Principal | null
      readonly reply: Reply | null
    }
  | { readonly state: 'expired' }

export type TurnEvent =
  | {
      readonly type: 'turn.queued'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      readonly collect?: true
      readonly expiresAt?: number
      /** When it began to wait, if it waited outside the log before. */
      readonly queuedAt?: number
      readonly by?: Principal
    }
  | {
      readonly type: 'turn.joined'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      readonly by?: Principal
    }
  | {
      readonly type: 'turn.started'
      readonly turn: string
      readonly input: Input
      readonly keys?: readonly RequestKey[]
      /** Of a turn that was not in the queue before. */
      readonly by?: Principal
      /** The others whose requests were collected in it. */
      readonly alsoBy?: readonly Principal[]
      /** When it began to wait, if it had to wait outside the log. */
      readonly queuedAt?: number
    }
  | {
      readonly type: 'message.added'
      readonly turn: string
      readonly role: 'assistant'
      readonly text: string
      readonly data?: unknown
      readonly partial?: true
    }
  /** What a running turn has said since the last of these, or the last message: no message yet. */
  | { readonly type: 'turn.output'; readonly turn: string; readonly text: string }
  | { readonly type: 'turn.done'; readonly turn: string }
  | { readonly type: 'turn.failed'; readonly turn: string; readonly error: TurnError }
  | {
      readonly type: 'turn.cancelled'
      readonly turn: string
      readonly reason: string
      readonly by?: Principal
    }
  | { readonly type: 'turn.interrupted'; readonly turn: string; readonly reason: string }
  | { readonly type: 'turn.expired'; readonly turn: string }

export type TurnCommand =
  /** Admit at once, into the queue. */
  | {
      readonly type: 'submit'
      readonly input: Input
      readonly keys: readonly RequestKey[]
      readonly collect: boolean
      /** The only turn that it may join: to join another would be to overtake somebody. */
      readonly joins?: string | null
      readonly expiresAt: number | null
      /** When it began to wait, if it waited outside the log before. */
      readonly queuedAt?: number | null
      readonly by: Principal
      /** The turn that has one of the keys already: then nothing is admitted. */
      readonly known?: string | null
    }
  /** Run a turn of the queue. */
  | { readonly type: 'start'; readonly turn: string }
  /** Admit and run a request that waited outside the log. */
  | {
      readonly type: 'admit'
      readonly input: Input
      readonly keys: readonly RequestKey[]
      /** Of all requests that were collected in it, the first one first. */
      readonly by: readonly Principal[]
      /** When the first of them began to wait; null if none had to. */
      readonly queuedAt: number | null
    }
  | { readonly type: 'message'; readonly turn: string; readonly reply: Reply }
  | { readonly type: 'output'; readonly turn: string; readonly text: string }
  /** Cancel a turn that still waits; one that runs is stopped by its run, and then finished. */
  | {
      readonly type: 'cancel'
      readonly turn: string
      readonly reason: string
      readonly by: Principal | null
    }
  | { readonly type: 'finish'; readonly turn: string; readonly end: TurnEnd }

const TERMINAL: ReadonlySet<string> = new Set([
  'turn.done',
  'turn.failed',
  'turn.cancelled',
  'turn.interrupted',
  'turn.expired',
])

export function isTerminal(event: { readonly type: string }): boolean {
  return TERMINAL.has(event.type)
}

export function inputText(input: Input): string {
  return typeof input === 'string' ? input : input.text
}

/** Several inputs as one: the texts under each other, the fields of the later ones winning. */
export function joinInputs(first: Input, second: Input): Input {
  const text = `${inputText(first)}\n\n${inputText(second)}`
  if (typeof first === 'string' && typeof second === 'string') return text
  return {
    ...(typeof first === 'string' ? {} : first),
    ...(typeof second === 'string' ? {} : second),
    text,
  }
}

/**
 * The turn that runs or waits with one of these request keys, if any (I11); `RequestKeys` knows
 * those of turns that are over. Throws `idempotency_mismatch` when a key was used with another
 * body.
 */
export function turnOfKeys(session: Session, keys: readonly RequestKey[]): string | null {
  for (const { key, digest } of keys) {
    const known = findKey(session, key)
    if (known === null) continue
    if (known.digest !== digest) throw idempotencyMismatch(key)
    return known.turn
  }
  return null
}

export function idempotencyMismatch(key: string): HoldfastError {
  return new HoldfastError(
    'idempotency_mismatch',
    `Idempotency-Key ${JSON.stringify(key)} was used before with another body`,
  )
}

function findKey(session: Session, key: string): { turn: string; digest: string } | null {
  const waiting = session.running === null ? session.queued : [session.running, ...session.queued]
  for (const turn of waiting) {
    const known = turn.keys.find((request) => request.key === key)
    if (known !== undefined) return { turn: turn.id, digest: known.digest }
  }
  return null
}

export function decideTurn(session: Session, command: TurnCommand): readonly Draft[] {
  switch (command.type) {
    case 'submit':
      return submitTurn(session, command)
    case 'start':
      return startTurn(session, command.turn)
    case 'admit':
      return admitTurn(session, command)
    case 'message':
      return [messageAdded(runningTurn(session, command.turn).id, command.reply, false)]
    case 'output':
      return session.running?.id === command.turn
        ? [{ type: 'turn.output', turn: command.turn, text: command.text }]
        : []
    case 'cancel':
      return session.queued.some((turn) => turn.id === command.turn)
        ? [turnCancelled(command.turn, command)]
        : []
    case 'finish':
      return finishTurn(session, command.turn, command.end)
  }
}

function submitTurn(session: Session, command: TurnCommand & { type: 'submit' }): readonly Draft[] {
  const { input, keys, collect, joins, expiresAt, queuedAt = null, by, known = null } = command
  if (known !== null || turnOfKeys(session, keys) !== null) return []
  const last = session.queued.at(-1)
  const next = last !== undefined && (joins === undefined || joins === last.id)
  if (collect && next && last.collect && fitsIn(last, input)) {
    return [{ type: 'turn.joined', turn: last.id, input, ...optionalKeys(keys), by }]
  }
  return [
    {
      type: 'turn.queued',
      turn: nextTurnId(session),
      input,
      ...optionalKeys(keys),
      ...(collect ? { collect } : {}),
      ...(expiresAt === null ? {} : { expiresAt }),
      ...(queuedAt === null ? {} : { queuedAt }),
      by,
    },
  ]
}

function fitsIn({ input: waiting }: Turn, input: Input): boolean {
  return inputText(waiting).length + inputText(input).length <= STATE_LIMITS.collectedCharsMax
}

function startTurn(session: Session, id: string): readonly Draft[] {
  const turn = session.queued.find((queued) => queued.id === id)
  if (turn === undefined) throw new HoldfastError('turn_over', `turn ${id} does not wait`)
  assertLaneFree(session)
  return [{ type: 'turn.started', turn: id, input: turn.input, ...optionalKeys(turn.keys) }]
}

function admitTurn(
  session: Session,
  { input, keys, by: callers, queuedAt }: TurnCommand & { type: 'admit' },
): readonly Draft[] {
  if (turnOfKeys(session, keys) !== null) return []
  assertLaneFree(session)
  const [by = null, ...alsoBy] = distinct(callers)
  return [
    {
      type: 'turn.started',
      turn: nextTurnId(session),
      input,
      ...optionalKeys(keys),
      ...recordedBy(by),
      ...(alsoBy.length === 0 ? {} : { alsoBy }),
      ...(queuedAt === null ? {} : { queuedAt }),
    },
  ]
}

/**
 * I2: the lane admits one at a time; `decide` refuses whatever the lane's bookkeeping may think.
 */
function assertLaneFree(session: Session): void {
  if (session.running === null) return
  throw new HoldfastError('session_busy', `turn ${session.running.id} runs`)
}

function finishTurn(session: Session, id: string, end: TurnEnd): readonly Draft[] {
  if (end.state === 'expired') {
    return session.queued.some((turn) => turn.id === id) ? [terminalEvent(id, end)] : []
  }
  const asks = withdrawAsks(session, runningTurn(session, id).id)
  const partial = end.state !== 'done'
  const message = end.reply === null ? [] : [messageAdded(id, end.reply, partial)]
  return [...asks, ...message, terminalEvent(id, end)]
}

function terminalEvent(turn: string, end: TurnEnd): Draft {
  switch (end.state) {
    case 'done':
      return { type: 'turn.done', turn }
    case 'failed':
      return { type: 'turn.failed', turn, error: end.error }
    case 'cancelled':
      return turnCancelled(turn, end)
    case 'expired':
      return { type: 'turn.expired', turn }
  }
}

export function turnCancelled(
  turn: string,
  { reason, by }: { readonly reason: string; readonly by: Principal | null },
): Draft {
  return { type: 'turn.cancelled', turn, reason, ...recordedBy(by) }
}

function runningTurn(session: Session, id: string): Turn {
  if (session.running?.id === id) return session.running
  throw new HoldfastError('turn_over', `turn ${id} does not run`)
}

/** What a turn had said when it was cut short, if anything. */
export function partialMessage(turn: string, said: string | null): readonly Draft[] {
  return said === null || said === '' ? [] : [messageAdded(turn, { text: said }, true)]
}

function messageAdded(turn: string, { text, data }: Reply, partial: boolean): Draft {
  return {
    type: 'message.added',
    turn,
    role: 'assistant',
    text,
    ...(data === undefined ? {} : { data }),
    ...(partial ? { partial } : {}),
  }
}

const nextTurnId = (session: Session): string => `t${session.seq + 1}`

/** Where in the log a turn begins, or null if this cannot be a turn's id. */
export function turnSeq(id: string): number | null {
  return /^t[1-9]\d{0,14}$/.test(id) ? Number(id.slice(1)) : null
}

function optionalKeys(keys: readonly RequestKey[]): { keys?: readonly RequestKey[] } {
  return keys.length === 0 ? {} : { keys }
}

export function foldTurn(
  session: Folding,
  event: EventOf<Exclude<TurnEvent['type'], 'message.added' | 'turn.output'>>,
): void {
  switch (event.type) {
    case 'turn.queued':
      session.queued = [...session.queued, turnOf(event)]
      break
    case 'turn.joined':
      session.queued = session.queued.map((turn) => joinTurn(turn, event))
      break
    case 'turn.started':
      session.running = startedTurn(session, event)
      session.queued = without(session.queued, event.turn)
      session.turns += 1
      break
    case 'turn.done':
    case 'turn.failed':
    case 'turn.cancelled':
    case 'turn.interrupted':
    case 'turn.expired':
      foldEnd(session, event.turn)
  }
}

function without(queued: readonly Turn[], id: string): readonly Turn[] {
  return queued.length === 0 ? queued : queued.filter((turn) => turn.id !== id)
}

type EventOf<Type extends SessionEvent['type']> = Extract<SessionEvent, { type: Type }>

function turnOf(event: EventOf<'turn.queued' | 'turn.started'>): Turn {
  return {
    id: event.turn,
    input: event.input,
    keys: event.keys ?? [],
    collect: event.type === 'turn.queued' && event.collect === true,
    expiresAt: event.type === 'turn.queued' ? (event.expiresAt ?? null) : null,
    by: event.by ?? null,
    queuedAt: queuedAtOf(event),
  }
}

/** One that was queued goes on as whose it was. */
function startedTurn({ queued }: Folding, event: EventOf<'turn.started'>): Turn {
  const started = turnOf(event)
  const waited = queued.find(({ id }) => id === event.turn)
  return waited === undefined ? started : { ...started, by: waited.by, queuedAt: waited.queuedAt }
}

function queuedAtOf(event: EventOf<'turn.queued' | 'turn.started'>): number | null {
  return event.queuedAt ?? (event.type === 'turn.queued' ? event.at : null)
}

function joinTurn(turn: Turn, event: TurnEvent & { type: 'turn.joined' }): Turn {
  if (turn.id !== event.turn) return turn
  return {
    ...turn,
    input: joinInputs(turn.input, event.input),
    keys: [...turn.keys, ...(event.keys ?? [])],
  }
}

function foldEnd(session: Folding, id: string): void {
  if (session.running?.id === id) session.running = null
  else session.queued = without(session.queued, id)
}

/** A turn as its log tells it. */
export type TurnRecord = {
  readonly id: string
  readonly state: TurnState
  readonly input: Input
  /** The last message, once there is one. */
  readonly reply: Reply | null
  readonly error: TurnError | null
  /** Why it was cancelled or interrupted. */
  readonly reason: string | null
  /** Whose turn it is; null in logs of 0.1.0. */
  readonly by: Principal | null
  readonly queuedAt: number | null
  readonly startedAt: number | null
  readonly endedAt: number | null
}

/** Folds one more event of a turn into its record; the first must be the one that admitted it. */
export function recordTurn(record: TurnRecord | null, event: SessionEvent): TurnRecord {
  if (record === null) return newRecord(event)
  switch (event.type) {
    case 'turn.joined':
      return { ...record, input: joinInputs(record.input, event.input) }
    case 'turn.started':
      return { ...record, state: 'running', startedAt: event.at }
    case 'message.added':
      return { ...record, reply: replyOf(event) }
    case 'turn.done':
      return { ...record, state: 'done', endedAt: event.at }
    case 'turn.failed':
      return { ...record, state: 'failed', error: event.error, endedAt: event.at }
    case 'turn.cancelled':
      return { ...record, state: 'cancelled', reason: event.reason, endedAt: event.at }
    case 'turn.interrupted':
      return { ...record, state: 'interrupted', reason: event.reason, endedAt: event.at }
    case 'turn.expired':
      return { ...record, state: 'expired', endedAt: event.at }
    default:
      return record
  }
}

function newRecord(event: SessionEvent): TurnRecord {
  if (event.type !== 'turn.queued' && event.type !== 'turn.started') {
    throw new HoldfastError('turn_unknown', `no turn begins at ${event.seq}`)
  }
  const queued = event.type === 'turn.queued'
  return {
    id: event.turn,
    state: queued ? 'queued' : 'running',
    input: event.input,
    reply: null,
    error: null,
    reason: null,
    by: event.by ?? null,
    queuedAt: queuedAtOf(event),
    startedAt: queued ? null : event.at,
    endedAt: null,
  }
}

export function replyOf(event: { readonly text: string; readonly data?: unknown }): Reply {
  return event.data === undefined ? { text: event.text } : { text: event.text, data: event.data }
}
