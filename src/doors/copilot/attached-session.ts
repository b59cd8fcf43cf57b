/**
 * A session that a connection is attached to: its events one way, messages and answers the other.
 * The connection is a driver of the session, like a client of any other door.
 */
import {
  asHoldfastError,
  HoldfastError,
  isTerminal,
  isWatcherId,
  turnSeq,
  type AttachmentHandle,
  type BusyPolicy,
  type ClientTool,
  type ClientTools,
  type ErrorCode,
  type FeedItem,
  type GivenInput,
  type Session,
  type SessionEvent,
  type SessionHandle,
  type Settings,
} from '../../core/index.ts'
import { permissionAnswer, questionAnswer, questionOf, sortOf, type Decision } from './asks.ts'
import { EventTranslator, type CopilotEvent } from './events.ts'
import type { NamedSession } from './sessions.ts'
import { OwnTurns, type TurnFailure } from './own-turns.ts'

/** What a session needs of its connection. */
export interface SessionClient {
  readonly isOver: boolean
  readonly clientTools: ClientTools
  now(): number
  notify(method: string, params: object): void
  /** When more may be sent; null: now. */
  readonly room: Promise<void> | null
  /** Asks the client; rejects with its error, or when the connection is over. */
  ask(method: string, params: object, signal?: AbortSignal): Promise<unknown>
  /** Calls `answered` when the client has come so far in what it is sent. */
  probe(answered: () => void): void
  /** The session is over for this connection; null: it is closed for good. */
  sessionOver(session: AttachedSession, why: HoldfastError | null): void
  /** Something went wrong that no request is answered with. */
  report(error: HoldfastError): void
}

export type AttachedOptions = NamedSession & {
  readonly attachment: AttachmentHandle
  readonly answers: readonly string[]
  /** That the agent may call. */
  readonly tools: readonly ClientTool[]
  readonly streaming: boolean
}

export type Sent = {
  readonly input: GivenInput
  readonly busy: BusyPolicy
  readonly settings?: Settings
}

/** How often a question is asked again whose answer was none of its choices. */
const ASKED_AGAIN_MAX = 2

export class AttachedSession {
  readonly name: string
  readonly session: SessionHandle
  readonly attachment: AttachmentHandle
  readonly #client: SessionClient
  readonly #answers: readonly string[]
  readonly #removeTools: () => void
  readonly #streaming: boolean
  readonly #own = new OwnTurns()
  /** Ends the questions that this client is asked. */
  readonly #questions = new Map<string, AbortController>()
  readonly #translator: EventTranslator
  #state: Session | null
  #feed: Awaited<ReturnType<SessionHandle['openFeed']>> | null = null
  #isOver = false

  /** `state`: of a session that was there; null: its client has created it. */
  constructor(client: SessionClient, options: AttachedOptions, state: Session | null) {
    const { name, session, attachment, answers, tools, streaming } = options
    this.#client = client
    this.name = name
    this.session = session
    this.attachment = attachment
    this.#answers = answers
    this.#removeTools = client.clientTools.add(session.id, tools)
    this.#streaming = streaming
    this.#state = state
    this.#translator = new EventTranslator(session.id, name, state)
  }

  /** Follows the session from where its state was read. */
  async begin(): Promise<void> {
    const { seq = 0, running = null } = this.#state ?? {}
    if (running !== null) await this.#readRunning(running.id, seq)
    const watcher = isWatcherId(this.attachment.id) ? this.attachment.id : undefined
    const { id: attachment } = this.attachment
    this.#feed = await this.session.openFeed({ after: seq, presence: false, watcher, attachment })
    if (this.#state !== null) this.#greet(this.#state)
    this.#state = null
    this.#follow(this.#feed).catch((thrown: unknown) => this.#end(asHoldfastError(thrown)))
  }

  /** What a client that has come has to know: first of all, which requests wait. */
  #greet({ seq: eventCount, asks }: Session): void {
    const now = this.#client.now()
    const resumeTime = new Date(now).toISOString()
    const data = { resumeTime, eventCount, continuePendingWork: true }
    this.#tell(this.#translator.made('session.resume', data, now))
    for (const event of this.#translator.waiting(now)) this.#tell(event)
    for (const { id } of asks) this.#question(id)
  }

  /** Of the turn that runs, what it has said and called so far. */
  async #readRunning(turn: string, until: number): Promise<void> {
    for (let after = (turnSeq(turn) ?? 1) - 1; after < until;) {
      const { events, position } = await this.session.read(after, until - after)
      for (const { body } of events) this.#translator.take(JSON.parse(body) as SessionEvent)
      if (position === after) return
      after = position
    }
  }

  async #follow(feed: AsyncGenerator<readonly FeedItem[]>): Promise<void> {
    for await (const items of feed) {
      for (const { event } of items) {
        if (this.#isOver) return
        if (event.type !== 'delta') await this.#take(event)
        else if (this.#streaming) this.#tell(this.#translator.delta(event, this.#client.now()))
        const { room } = this.#client
        if (room !== null) await room
      }
    }
    if (!this.#isOver) this.#end(null)
  }

  async #take(event: SessionEvent): Promise<void> {
    // Which turns are the client's own must be known when they end.
    if (isTerminal(event)) await this.#own.settled()
    for (const told of this.#translator.take(event)) this.#tell(told)
    if (event.type === 'ask.opened') this.#question(event.ask)
    if (event.type === 'ask.settled') this.#settled(event.ask)
    if ('turn' in event && isTerminal(event)) this.#ended(event)
  }

  #ended(event: SessionEvent & { readonly turn: string }): void {
    const failure = failureOf(event)
    // A cancelled message has its reply: what was said until then.
    const isAnswered = event.type === 'turn.cancelled'
    const isTold = this.#own.end(event.turn, isAnswered ? null : failure)
    const { at } = event
    this.#tell(this.#translator.made('assistant.idle', {}, at))
    if (!isTold) {
      if (failure !== null && !isAnswered) {
        const warning = { warningType: failure.code, message: failure.message }
        this.#tell(this.#translator.made('session.warning', warning, at))
      }
      return
    }
    if (failure !== null && !isAnswered) {
      const error = { errorType: 'query', errorCode: failure.code, message: failure.message }
      this.#tellEnd('session.error', error, at)
    }
    this.#tellEnd('session.idle', isAnswered ? { aborted: true } : {}, at)
  }

  /** An event that ends a call, between requests that show whether the client has come to it. */
  #tellEnd(type: 'session.error' | 'session.idle', data: object, at: number): void {
    const own = this.#own
    this.#client.probe(own.ahead())
    this.#tell(this.#translator.made(type, data, at))
    if (own.isConcurrent) this.#client.probe(own.around())
  }

  #tell(event: CopilotEvent): void {
    this.#client.notify('session.event', { sessionId: this.name, event })
  }

  /** `answer` is called when the message has its turn, or when its reply was told. */
  send(sent: Sent, answer: (turn: string, failure: TurnFailure | null) => void): Promise<void> {
    const isLate = this.#own.isCrowded
    return this.#own.sending(this.#submit(sent, isLate, answer))
  }

  async #submit(
    { input, ...options }: Sent,
    isLate: boolean,
    answer: (turn: string, failure: TurnFailure | null) => void,
  ): Promise<void> {
    const { id } = await this.session.submit(input, options)
    const isHere = !this.#isOver
    if (isHere) this.#own.add(id, isLate ? (failure) => answer(id, failure) : null)
    if (!isLate || !isHere) answer(id, null)
  }

  #question(id: string): void {
    const ask = this.#translator.ask(id)
    if (ask === undefined || sortOf(ask) !== 'question' || !this.#answers.includes(ask.kind)) return
    const asking = new AbortController()
    this.#questions.set(id, asking)
    // The client may be gone, or have no answer: the ask goes on waiting for another one.
    void this.#askUser(id, asking.signal)
      .catch((thrown: unknown) => this.#client.report(asHoldfastError(thrown)))
      .finally(() => this.#questions.delete(id))
  }

  async #askUser(id: string, signal: AbortSignal): Promise<void> {
    for (let asked = 0; asked <= ASKED_AGAIN_MAX; asked += 1) {
      const ask = this.#translator.ask(id)
      if (ask === undefined || signal.aborted) return
      const params = { sessionId: this.name, ...questionOf(ask) }
      const result = await this.#client.ask('userInput.request', params, signal)
      if (signal.aborted) return
      const { answer } = (result ?? {}) as { readonly answer?: unknown }
      if (await this.answerQuestion(id, typeof answer === 'string' ? answer : '')) return
    }
  }

  #settled(id: string): void {
    this.#questions.get(id)?.abort()
    this.#questions.delete(id)
  }

  /** False if the words are no answer to it. */
  async answerQuestion(id: string, words: string): Promise<boolean> {
    const ask = this.#translator.ask(id)
    if (ask === undefined) return true
    try {
      await this.attachment.answer(id, questionAnswer(ask, words))
    } catch (error) {
      const { code } = asHoldfastError(error)
      if (code === 'ask_settled') return true
      if (code === 'invalid_field' || code === 'invalid_answer') return false
      throw error
    }
    return true
  }

  /** False if it was settled before: the first answer counts. */
  async answer(id: string, read: (ask: ReturnType<EventTranslator['ask']> & {}) => unknown) {
    const ask = this.#translator.ask(id) ?? (await this.session.asks()).find((one) => one.id === id)
    if (ask === undefined) return false
    try {
      await this.attachment.answer(id, read(ask))
      return true
    } catch (error) {
      if (asHoldfastError(error).code === 'ask_settled') return false
      throw error
    }
  }

  answerPermission(id: string, decision: Decision): Promise<boolean> {
    return this.answer(id, (ask) => permissionAnswer(ask, decision))
  }

  answerTool(id: string, outcome: object): Promise<boolean> {
    return this.answer(id, () => outcome)
  }

  /** The client says goodbye to the session, or its connection is lost. */
  async leave(isLost: boolean): Promise<void> {
    this.#stop(new HoldfastError('cancelled', 'the client has left the session'))
    await (isLost ? this.attachment.lose() : this.attachment.leave())
  }

  #end(why: HoldfastError | null): void {
    if (this.#isOver) return
    this.#stop(why ?? new HoldfastError('session_closed', `session ${this.name} is closed`))
    this.#client.sessionOver(this, why)
  }

  /** Tells what its connection knows of it, also when it is over. */
  warn(warning: { readonly warningType: string; readonly message: string }): void {
    this.#tell(this.#translator.made('session.warning', warning, this.#client.now()))
  }

  /** Another has its attachment, or it was taken away. */
  over(why: HoldfastError): void {
    this.#end(why)
  }

  #stop({ code, message }: HoldfastError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#removeTools()
    void this.#feed?.return(undefined)
    for (const asking of this.#questions.values()) asking.abort()
    this.#own.fail({ code, message })
  }
}

/** Cancels the turn that runs in a session; nothing happens if none does. */
export async function abortRunning(session: SessionHandle): Promise<void> {
  // Whether a turn runs tells nothing to a caller that may not cancel it.
  await session.assertMay('turn.cancel')
  const { running } = await session.state()
  if (running !== null) await session.cancelTurn(running.id, 'cancelled')
}

function failureOf(event: SessionEvent): TurnFailure | null {
  switch (event.type) {
    case 'turn.failed':
      return event.error
    case 'turn.cancelled':
      return { code: 'cancelled', message: `the turn was cancelled: ${event.reason}` }
    case 'turn.interrupted':
      return { code: 'interrupted', message: `the turn was interrupted: ${event.reason}` }
    case 'turn.expired':
      return { code: 'expired', message: 'the message has waited for too long' }
    default:
      return null
  }
}

/** After these the client may go on with its other sessions. */
export const ENDED: ReadonlySet<ErrorCode> = new Set([
  'attachment_unknown',
  'attachment_ended',
  'superseded',
  'session_closed',
  'session_erased',
  'session_unknown',
  'forbidden',
])
