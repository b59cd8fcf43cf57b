/**
 * Where the conversation of a session began, if not in its own log: at a turn of another session
 * that it was forked from, or in a conversation of the agent that was begun without Holdfast. The
 * first event of the log has it, with the messages up to there, so that it is there as a whole.
 */
import { HoldfastError, invalid } from './errors.ts'
import {
  messagesOf,
  POSITION_KIND,
  readEvent,
  readEvents,
  turnUnknown,
  type LogContext,
} from './history.ts'
import { STATE_LIMITS } from './limits.ts'
import type { Message, Runner } from './runner.ts'
import type { SessionHandle } from './session-handle.ts'
import type { EarlierMessage, Settings } from './state.ts'
import { isTerminal, turnSeq } from './turns.ts'

/** What is known of a session up to the end of one of its turns. */
export type ForkPoint = {
  readonly turn: string
  /** No turn has started after it. */
  readonly isHead: boolean
  /** What the runner has kept about the turn's end. */
  readonly position: unknown
  readonly messages: readonly EarlierMessage[]
  readonly omitted: number
}

/** Reads a log up to the end of a turn, or of the last one that is finished. */
export async function readForkPoint(
  log: LogContext,
  id: string,
  turn: string | null,
): Promise<ForkPoint> {
  const reading = new ForkReading(turn)
  for await (const page of readEvents(log, id, 0)) {
    for (const stored of page) reading.add(readEvent(stored, id))
  }
  return reading.finish(id)
}

class ForkReading {
  readonly #wanted: string | null
  #messages: Message[] = []
  #positions = new Map<string, unknown>()
  /** The turn that the fork is made at, and how many messages there were at its end. */
  #at: { readonly turn: string; readonly messages: number } | null = null
  #lastStarted: string | null = null
  #isUnfinished = false

  constructor(wanted: string | null) {
    this.#wanted = wanted
  }

  add(event: ReturnType<typeof readEvent>): void {
    this.#messages.push(...messagesOf(event))
    if (!('turn' in event)) return
    const { turn } = event
    if (event.type === 'turn.started') this.#lastStarted = turn
    if (event.type === 'turn.activity' && event.kind === POSITION_KIND) {
      this.#positions.set(turn, event.data)
    }
    if (!isTerminal(event) || (this.#wanted ?? turn) !== turn) return
    this.#isUnfinished = event.type !== 'turn.done'
    if (event.type === 'turn.done') this.#at = { turn, messages: this.#messages.length }
  }

  finish(id: string): ForkPoint {
    const wanted = this.#wanted
    if (wanted !== null && (turnSeq(wanted) === null || (this.#at === null && !this.#isKnown))) {
      throw turnUnknown(id, wanted)
    }
    if (this.#at === null) throw invalid('turn', 'must be a turn that is done')
    const { turn, messages: count } = this.#at
    const kept = newest(this.#messages.slice(0, count))
    return {
      turn,
      isHead: this.#lastStarted === turn,
      position: this.#positions.get(turn) ?? null,
      messages: kept,
      omitted: count - kept.length,
    }
  }

  /** The wanted turn is there, but has not ended well, or not at all. */
  get #isKnown(): boolean {
    return this.#isUnfinished || this.#lastStarted === this.#wanted
  }
}

/** The newest messages that an event may hold. */
export function newest(
  messages: readonly EarlierMessage[],
  charsMax: number = STATE_LIMITS.originCharsMax,
): readonly EarlierMessage[] {
  const kept: EarlierMessage[] = []
  let chars = 0
  for (const { role, text, parts, at } of messages.toReversed()) {
    const more = parts === undefined ? {} : { parts }
    chars += text.length + (JSON.stringify(parts)?.length ?? 0) + 100
    if (chars > charsMax) break
    kept.unshift({ role, text, ...more, at })
  }
  return kept
}

export function cannotFork(agent: string, why: string): HoldfastError {
  const message = `agent ${agent} ${why}`
  return new HoldfastError('capability_missing', message, { capability: 'fork' })
}

export function cannotOpen(why: string): HoldfastError {
  return new HoldfastError('capability_missing', why, { capability: 'terminal' })
}

/** The session of a key, if it was forked from there; else the key is taken. */
export async function forkedFrom(
  session: SessionHandle,
  source: string,
  turn: string | undefined,
): Promise<SessionHandle> {
  const { origin } = await session.state()
  const isSame = origin?.session === source && (turn === undefined || origin.turn === turn)
  if (isSame) return session
  throw new HoldfastError('key_taken', 'the key belongs to another session', {
    session: session.id,
  })
}

/** A conversation that was begun without Holdfast, as its session begins. */
export async function readConversation(
  agent: string,
  runner: Runner | null,
  { backend, settings: given }: { readonly backend: string; readonly settings: Settings },
) {
  const { backendCharsMax } = STATE_LIMITS
  if (typeof backend !== 'string' || backend === '' || backend.length > backendCharsMax) {
    throw invalid('backend', `must be a text of 1 to ${backendCharsMax} characters`)
  }
  if (runner?.adopt === undefined) {
    const message = `agent ${agent} cannot continue conversations that were begun elsewhere`
    throw new HoldfastError('capability_missing', message, { capability: 'adopt' })
  }
  const { messages: all, settings, position } = await runner.adopt(backend, given)
  // Parts would name bytes that the session does not have.
  const messages = newest(all.map(({ role, text, at }) => ({ role, text, at })))
  const omitted = all.length - messages.length
  const origin = { backend, messages, omitted, ...(position === undefined ? {} : { position }) }
  return { origin, settings: { ...settings, ...given } }
}

/** One conversation of an agent has one open session, since the store gives an id to one only. */
export function adoptedId(agent: string, backend: string, attempt: number): string {
  const name = `${agent}.${backend}`.replaceAll(/[^\w.:~-]/g, '_')
  return (
    `adopted.${name}`.slice(0, STATE_LIMITS.idCharsMax - 8) + (attempt === 1 ? '' : `.${attempt}`)
  )
}
