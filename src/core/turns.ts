/** Turns: what `decide` and `evolve` do for them. */
import { withdrawAsks } from './asks.ts'
import type { NewTurn, TurnCommand, TurnEnd } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { Draft, EventOf, TurnEvent } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import {
  isSamePrincipal,
  type Folding,
  type Input,
  type Part,
  type Principal,
  type Reply,
  type RequestKey,
  type Session,
  type Settings,
  type Turn,
} from './state.ts'

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

/** Where in the log a turn begins, or null if this cannot be a turn's id. */
export function turnSeq(id: string): number | null {
  return /^t[1-9]\d{0,14}$/.test(id) ? Number(id.slice(1)) : null
}

export function inputText(input: Input): string {
  return typeof input === 'string' ? input : input.text
}

/** The parts of a recorded input; null: it has none, or an older log has something else there. */
export function partsOf(input: Input): readonly Part[] | null {
  const parts: unknown = typeof input === 'string' ? null : input.parts
  return Array.isArray(parts) && parts.every(isPart) ? parts : null
}

function isPart(part: unknown): part is Part {
  const { type, text, digest } = asFields(part)
  if (type === 'text') return typeof text === 'string'
  return (type === 'image' || type === 'file') && typeof digest === 'string'
}

/** The fields of what may be no object. */
export function asFields(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}

/**
 * Several inputs as one: the texts under each other, the parts one after the other, the other
 * fields of the later ones winning.
 */
export function joinInputs(first: Input, second: Input): Input {
  const text = `${inputText(first)}\n\n${inputText(second)}`
  if (typeof first === 'string' && typeof second === 'string') return text
  const hasParts = partsOf(first) !== null || partsOf(second) !== null
  return {
    ...(typeof first === 'string' ? {} : first),
    ...(typeof second === 'string' ? {} : second),
    text,
    ...(hasParts ? { parts: [...partsOrText(first), ...partsOrText(second)] } : {}),
  }
}

function partsOrText(input: Input): readonly Part[] {
  return partsOf(input) ?? [{ type: 'text', text: inputText(input) }]
}

export function decideTurn(session: Session, command: TurnCommand): readonly Draft[] {
  switch (command.type) {
    case 'submit':
      return submitTurn(session, command)
    case 'steer': {
      const { turn, input, keys, by } = command
      runningTurn(session, turn)
      return [{ type: 'turn.steering', turn, input, ...optionalKeys(keys), ...recordedBy(by) }]
    }
    case 'steered': {
      const { turn, steering, input, by } = command
      // The turn may have ended since the agent took the message.
      if (session.running?.id !== turn) return []
      return [{ type: 'turn.steered', turn, steering, input, ...recordedBy(by) }]
    }
    case 'move':
      return moveTurn(session, command)
    case 'start':
      return startTurn(session, command.turn)
    case 'message':
      return [messageAdded(runningTurn(session, command.turn).id, command.reply, false)]
    case 'output':
      return session.running?.id === command.turn
        ? [{ type: 'turn.output', turn: command.turn, text: command.text }]
        : []
    case 'activity': {
      const { turn, activity } = command
      const { kind, data } = activity
      return [{ type: 'turn.activity', turn: runningTurn(session, turn).id, kind, data }]
    }
    case 'cancel':
      return isQueued(session, command.turn) ? [turnCancelled(command.turn, command)] : []
    case 'finish':
      return finishTurn(session, command.turn, command.end)
  }
}

function submitTurn(session: Session, command: TurnCommand & { type: 'submit' }): readonly Draft[] {
  const { input, keys, collect, joins, expiresAt, queuedAt, settings, by } = command
  const { refusedBy = null } = command
  const last = session.queued.at(-1)
  if (collect && last?.collect === true && joins === last.id && fitsIn(last, input)) {
    return [{ type: 'turn.joined', turn: last.id, input, ...optionalKeys(keys), ...recordedBy(by) }]
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
      ...(refusedBy === null ? {} : { refusedBy }),
      ...ownSettings(settings),
      ...recordedBy(by),
    },
  ]
}

/** I3: the turns of other principals keep their places, so a turn moves among those of its own. */
function moveTurn(session: Session, command: TurnCommand & { type: 'move' }): readonly Draft[] {
  const { turn, before, by } = command
  for (const id of before === null ? [turn] : [turn, before]) {
    const waiting = session.queued.find((queued) => queued.id === id)
    if (waiting === undefined) throw new HoldfastError('turn_over', `turn ${id} does not wait`)
    if (!mayMove(waiting, by)) {
      const why = waiting.collect ? 'may have messages of others' : "is another principal's"
      throw new HoldfastError('forbidden', `turn ${id} cannot be moved: it ${why}`)
    }
  }
  const moved = movedTurns(session.queued, command)
  const isMoved =
    turn !== before && moved.some((waiting, place) => waiting !== session.queued[place])
  return isMoved ? [{ type: 'turn.moved', turn, before, by }] : []
}

/** Whether this principal may move it: it is its own, and requests of others cannot have joined. */
function mayMove({ by, collect }: Turn, mover: Principal): boolean {
  return !collect && isSamePrincipal(by, mover)
}

type Move = { readonly turn: string; readonly before: string | null; readonly by: Principal }

/** The queue with the same places for all turns that the mover may not move. */
function movedTurns(queued: readonly Turn[], { turn, before, by }: Move): readonly Turn[] {
  const own = queued.filter((waiting) => mayMove(waiting, by))
  const order = own.filter(({ id }) => id !== turn)
  const place = order.findIndex(({ id }) => id === before)
  order.splice(place < 0 ? order.length : place, 0, ...own.filter(({ id }) => id === turn))
  const next = order.values()
  return queued.map((waiting) => (mayMove(waiting, by) ? (next.next().value ?? waiting) : waiting))
}

function fitsIn({ input: waiting }: Turn, input: Input): boolean {
  return inputText(waiting).length + inputText(input).length <= STATE_LIMITS.collectedCharsMax
}

/** I2: `decide` refuses a second turn whatever the queue may want. */
function startTurn(session: Session, turn: string | NewTurn): readonly Draft[] {
  if (session.running !== null) {
    throw new HoldfastError('session_busy', `turn ${session.running.id} runs`)
  }
  if (typeof turn === 'string') {
    const queued = session.queued.find(({ id }) => id === turn)
    if (queued === undefined) throw new HoldfastError('turn_over', `turn ${turn} does not wait`)
    const { id, input, keys, settings } = queued
    const more = { ...optionalKeys(keys), ...ownSettings(settings) }
    return [{ type: 'turn.started', turn: id, input, ...more }]
  }
  const principals = new Map(turn.by.map((by) => [JSON.stringify(by), by]))
  const [by = null, ...alsoBy] = principals.values()
  return [
    {
      type: 'turn.started',
      turn: nextTurnId(session),
      input: turn.input,
      ...optionalKeys(turn.keys),
      ...recordedBy(by),
      ...(alsoBy.length === 0 ? {} : { alsoBy }),
      ...(turn.queuedAt === null ? {} : { queuedAt: turn.queuedAt }),
      ...ownSettings(turn.settings),
    },
  ]
}

function finishTurn(session: Session, id: string, end: TurnEnd): readonly Draft[] {
  if (end.state === 'expired') return isQueued(session, id) ? [terminalEvent(id, end)] : []
  const { id: turn } = runningTurn(session, id)
  const asks = session.asks.length === 0 ? [] : withdrawAsks(session, turn)
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

function isQueued({ queued }: Session, id: string): boolean {
  return queued.some((turn) => turn.id === id)
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

/** `by` in a draft; left out for what the system does. */
export function recordedBy(by: Principal | null): { readonly by?: Principal } {
  return by === null ? {} : { by }
}

function ownSettings(settings: Settings | null = null): { readonly settings?: Settings } {
  return settings === null ? {} : { settings }
}

const nextTurnId = (session: Session): string => `t${session.seq + 1}`

function optionalKeys(keys: readonly RequestKey[]): { keys?: readonly RequestKey[] } {
  return keys.length === 0 ? {} : { keys }
}

export function foldTurn(
  session: Folding,
  event: EventOf<
    Exclude<TurnEvent['type'], 'message.added' | 'turn.output' | 'turn.activity' | 'turn.steered'>
  >,
): void {
  switch (event.type) {
    case 'turn.queued':
      session.queued = [...session.queued, admittedTurn(event)]
      if (session.running?.id === event.refusedBy) session.running = withoutKeys(session, event)
      break
    case 'turn.joined':
      session.queued = session.queued.map((turn) => joinTurn(turn, event))
      break
    case 'turn.moved':
      session.queued = movedTurns(session.queued, event)
      break
    case 'turn.steering':
      if (session.running === null) break
      session.running = {
        ...session.running,
        keys: [...session.running.keys, ...(event.keys ?? [])],
      }
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
      if (session.running?.id === event.turn) session.running = null
      else session.queued = without(session.queued, event.turn)
  }
}

/** The running turn did not take a message: the keys of that are not its own any more. */
function withoutKeys({ running }: Folding, event: EventOf<'turn.queued'>): Turn | null {
  const gone = new Set(event.keys?.map(({ key }) => key))
  if (running === null || gone.size === 0) return running
  return { ...running, keys: running.keys.filter(({ key }) => !gone.has(key)) }
}

function without(queued: readonly Turn[], id: string): readonly Turn[] {
  return queued.length === 0 ? queued : queued.filter((turn) => turn.id !== id)
}

function admittedTurn(event: EventOf<'turn.queued' | 'turn.started'>): Turn {
  return {
    id: event.turn,
    input: event.input,
    keys: event.keys ?? [],
    collect: event.type === 'turn.queued' && event.collect === true,
    expiresAt: event.type === 'turn.queued' ? (event.expiresAt ?? null) : null,
    by: event.by ?? null,
    queuedAt: queuedAtOf(event),
    ...ownSettings(event.settings),
  }
}

/** A turn that waited in the log keeps its principal and the time at which it began to wait. */
function startedTurn({ queued }: Folding, event: EventOf<'turn.started'>): Turn {
  const started = admittedTurn(event)
  const waited = queued.find(({ id }) => id === event.turn)
  return waited === undefined ? started : { ...started, by: waited.by, queuedAt: waited.queuedAt }
}

export function queuedAtOf(event: EventOf<'turn.queued' | 'turn.started'>): number | null {
  return event.queuedAt ?? (event.type === 'turn.queued' ? event.at : null)
}

function joinTurn(turn: Turn, event: EventOf<'turn.joined'>): Turn {
  if (turn.id !== event.turn) return turn
  return {
    ...turn,
    input: joinInputs(turn.input, event.input),
    keys: [...turn.keys, ...(event.keys ?? [])],
  }
}
