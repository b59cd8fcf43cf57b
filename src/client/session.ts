/**
 * One session as a page or a program sees it: its events as they come, its turns and asks, and
 * whether it is there at all.
 *
 * 1. Every event and delta is emitted once, in order: what was seen before is dropped by its
 *    position.
 * 2. Whatever is pending settles: by what the server says, or with the session's end.
 * 3. A client that has left emits nothing any more, whether or not the goodbye arrived.
 */
import {
  WIRE_VERSION,
  type Ask,
  type CreationOptions,
  type Delta,
  type Hello,
  type Input,
  type Resume,
  type Role,
  type Seen,
  type ServerFrame,
  type SessionEvent,
  type SettingsChange,
  type TurnOptions,
  type Welcome,
} from '../wire/frames.ts'
import { Asks } from './asks.ts'
import { Bookmark } from './bookmark.ts'
import { ClientConnection, type ClientState, type ConnectionOwner } from './connection.ts'
import { endingOf, errorOf, PLACE_LOST } from './endings.ts'
import { blobUploader, PartSender, type ClientInput } from './parts.ts'
import type { Platform } from './platform.ts'
import { deferred, PendingRequests, type RequestBody, type Settle } from './requests.ts'
import {
  clientMessagesOf,
  ClientTurn,
  turnProblem,
  Turns,
  type ClientMessage,
  type TurnTrack,
} from './turns.ts'

export type ClientTurnOptions = Pick<TurnOptions, 'busy' | 'waitMs' | 'onDisconnect' | 'settings'>

/** Which session, and in which role. Options of its creation count only if this creates it. */
export type ClientSessionOptions = CreationOptions & {
  /** One of the two: the caller's own name for it, or the id of one that exists. */
  readonly key?: string
  readonly id?: string
  readonly role?: Role
  /** The kinds of ask that this client answers. */
  readonly answers?: readonly string[]
  /** The token of a link to this session. */
  readonly link?: string
  /** Begin after this, instead of at the beginning. */
  readonly after?: Seen
  /** After a reload: everything again (the default), or what the page had not seen yet. */
  readonly history?: 'replay' | 'continue'
  /** Get events about attachments and links too. */
  readonly presence?: boolean
  /** What the place of this page is remembered under, instead of the key or id. */
  readonly name?: string
}

export type ClientSessionEvents = {
  readonly event: SessionEvent
  readonly delta: Delta
  /** A question that waits for an answer, once. */
  readonly ask: Ask
  /** All that wait now, whenever that changes. */
  readonly asks: readonly Ask[]
  readonly state: ClientState
  /** What was said: a turn's input, and every message of the answer. */
  readonly message: ClientMessage
}

export type SessionInfo = Welcome['session']

const BEGINNING: Seen = { seq: 0, delta: 0 }
export class ClientSession {
  #options: ClientSessionOptions
  readonly #token: string | undefined
  readonly #handlers = new Handlers<ClientSessionEvents>()
  readonly #bookmark: Bookmark
  readonly #connection: ClientConnection
  readonly #requests: PendingRequests
  readonly #turns: Turns
  readonly #parts: PartSender
  readonly #asks: Asks
  #ready = deferred<void>()
  /** The last one. */
  #welcome: Welcome | null = null
  #seen: Seen
  #id: string | undefined
  #resume: Resume | null = null
  /** All that it had: a watcher gets another one with every connection. */
  readonly #attachments = new Set<string>()
  #brought: readonly Ask[] | null = null
  #isRestored = false
  #isRestarted = false
  #isTaking = false
  #hasLeft = false

  constructor(
    platform: Platform,
    target: { readonly url: string; readonly token: string | undefined },
    options: ClientSessionOptions,
  ) {
    const { key, id, name, answers = [], after = BEGINNING } = options
    const { clock, random } = platform
    this.#options = options
    this.#token = target.token
    this.#id = id
    this.#seen = after
    this.#bookmark = new Bookmark(platform.storage, name ?? key ?? id ?? '')
    this.#asks = new Asks(answers)
    const prefix = `${clock.now().toString(36)}${random().toString(36).slice(2, 10)}`
    this.#requests = new PendingRequests((json) => this.#connection.sendText(json), prefix)
    this.#turns = new Turns(() => this.#requests.isTurnDue)
    const { url, token } = target
    this.#parts = new PartSender(blobUploader(url, token, () => this.#sessionId()))
    this.#restore()
    this.#connection = new ClientConnection(platform, target, this.#owner())
    this.#connection.start()
  }

  get state(): ClientState {
    return this.#connection.state
  }

  /** The session as it was at the last welcome; null before the first. */
  get info(): SessionInfo | null {
    return this.#welcome?.session ?? null
  }

  /** The id of this client's hold on the session, as events name it; null before the welcome. */
  get attachment(): string | null {
    return this.#welcome?.attachment ?? null
  }

  /** As what it was let in: after a reload, as what the page was before. */
  get role(): Role | null {
    return this.#welcome?.role ?? null
  }

  /** What it may do, as the server says; null before the welcome, and with a server of 0.1.0. */
  get scopes(): readonly string[] | null {
    return this.#welcome?.scopes ?? null
  }

  /** The position of the last event and delta that was emitted. */
  get seen(): Seen {
    return this.#seen
  }

  get asks(): readonly Ask[] {
    return this.#asks.open
  }

  /** The first welcome; rejected if the session ends before it. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  /** The returned function removes the handler. */
  on<Name extends keyof ClientSessionEvents>(
    name: Name,
    handler: (value: ClientSessionEvents[Name]) => void,
  ): () => void {
    return this.#handlers.on(name, handler)
  }

  /** Await it for the result, or iterate it for the answer as it comes. */
  turn(input: ClientInput, options: ClientTurnOptions = {}): ClientTurn {
    const { busy, waitMs, onDisconnect, settings } = options
    const track = deferred<TurnTrack>()
    const steered = deferred<boolean>()
    const problem = turnProblem(input, waitMs)
    const send = (ready: Input): void =>
      this.#request(
        { type: 'turn', input: ready, busy, waitMs, onDisconnect, settings },
        {
          taken: (turn, isSteered) => {
            steered.resolve(isSteered)
            track.resolve(this.#turns.take(turn))
          },
          refused: track.reject,
        },
      )
    if (problem !== null) track.reject(problem)
    else this.#parts.send(input, send, track.reject)
    return new ClientTurn(track.promise, steered.promise)
  }

  async #sessionId(): Promise<string> {
    await this.ready
    return this.info?.id ?? ''
  }

  /** Stops a turn; resolves when it is over. */
  cancel(turn: string): Promise<void> {
    return this.#requestDone({ type: 'cancel', turn })
  }

  /** Changes how the session's agent is to work; null takes a setting back. */
  configure(settings: SettingsChange): Promise<void> {
    return this.#requestDone({ type: 'configure', settings })
  }

  /** The first valid answer wins; a later one is refused with `ask_settled`. */
  answer(ask: string, answer: unknown): Promise<void> {
    const said = answer ?? null
    const { done, settle } = this.#asks.answer(ask, said)
    this.#request({ type: 'answer', ask, answer: said }, settle)
    return done
  }

  /** Closes the session, for everybody. */
  close(): Promise<void> {
    const { state } = this
    const isClosed = state.name === 'ended' && state.code === 'session_closed'
    if (isClosed) return Promise.resolve()
    return this.#requestDone({ type: 'close' })
  }

  /** Says goodbye; the session goes on without this client. */
  leave(): void {
    this.#hasLeft = true
    try {
      this.#connection.send({ type: 'bye' })
    } finally {
      this.#connection.end(endingOf('left', 'this client has left'))
      this.#handlers.clear()
    }
  }

  /** Leaves without another word to any handler. */
  dispose(): void {
    this.#handlers.clear()
    this.leave()
  }

  /**
   * A watcher takes part from now on, as a driver that answers these kinds of ask. It connects
   * anew; what is asked meanwhile leaves when that is done. Ends with `forbidden` if it may not.
   */
  drive({ answers = [] }: { readonly answers?: readonly string[] } = {}): void {
    if (this.#options.role !== 'watcher' || this.role === 'driver') return
    this.#options = { ...this.#options, role: 'driver', answers }
    this.#asks.setKinds(answers)
    this.#connection.renew()
  }

  /** After an end with the hint `take_over`, by a person's decision: take the session over. */
  takeOver(): Promise<void> {
    const { state } = this
    const may = state.name === 'ended' && state.hint === 'take_over' && !this.#hasLeft
    if (!may) return this.ready
    this.#isTaking = true
    this.#isRestarted = false
    this.#ready = deferred()
    this.#connection.start()
    return this.ready
  }

  #requestDone(body: RequestBody): Promise<void> {
    const done = deferred<void>()
    this.#request(body, { taken: () => done.resolve(), refused: done.reject })
    return done.promise
  }

  #request(body: RequestBody, settle: Settle): void {
    const { state } = this
    if (state.name === 'ended') settle.refused(errorOf(state), false)
    else this.#requests.add(body, settle)
  }

  /**
   * A reloaded page takes its attachment up again; what it shows is empty, so it reads all again.
   */
  #restore(): void {
    const place = this.#bookmark.read()
    const { id, after, history } = this.#options
    if (place === null || (id !== undefined && id !== place.session)) return
    this.#isRestored = true
    this.#id = place.session
    this.#resume = place.resume
    if (after === undefined && history === 'continue') this.#seen = place.seen
  }

  #remember(): void {
    if (this.#resume === null || this.#id === undefined) return
    this.#bookmark.write({ session: this.#id, resume: this.#resume, seen: this.#seen })
  }

  #owner(): ConnectionOwner {
    return {
      hello: () => this.#hello(),
      welcomed: (welcome: Welcome) => this.#welcomed(welcome),
      received: (frame) => this.#received(frame),
      caughtUp: () => this.#remember(),
      rethink: (code) => this.#rethink(code),
      changed: (state) => this.#changed(state),
    }
  }

  #hello(): Hello {
    const { key, role, answers, presence } = this.#options
    const { seq, delta } = this.#seen
    const known = this.#id !== undefined
    return {
      type: 'hello',
      v: WIRE_VERSION,
      ...(known ? { session: this.#id } : { key, options: creation(this.#options) }),
      auth: this.#auth(),
      role,
      answers,
      presence,
      after: seq > 0 || delta > 0 ? this.#seen : undefined,
      take: this.#isTaking ? true : undefined,
    }
  }

  /** A client that comes back needs no link, which may be used up by now. */
  #auth(): Hello['auth'] {
    const token = this.#token
    const { link } = this.#options
    if (this.#resume !== null) return { token, resume: this.#resume }
    return token === undefined && link === undefined ? undefined : { token, link }
  }

  #welcomed(welcome: Welcome): void {
    const { session, attachment, resume, epoch } = welcome
    this.#welcome = welcome
    this.#attachments.add(attachment)
    this.#id = session.id
    this.#resume = resume === null ? null : { attachment, token: resume }
    this.#isTaking = false
    this.#isRestored = false
    this.#isRestarted = false
    // Kept before it is confirmed: after that the token before it is good for nothing.
    this.#remember()
    this.#connection.send({ type: 'ready', epoch })
    this.#requests.connected(attachment)
    this.#brought = this.#asks.welcome(welcome)
    this.#ready.resolve()
  }

  #rethink(code: string): ReturnType<ConnectionOwner['rethink']> {
    if (code === 'ahead' && !this.#isRestarted) {
      this.#isRestarted = true
      this.#seen = BEGINNING
      const restart = endingOf('ahead', 'the server has lost a part of the log')
      this.#turns.end(restart)
      this.#asks.endAnswers(errorOf(restart))
      return 'from the beginning'
    }
    if (!this.#isRestored || !PLACE_LOST.includes(code)) return 'no'
    this.#isRestored = false
    this.#resume = null
    this.#bookmark.clear()
    return 'yes'
  }

  #changed(state: ClientState): void {
    if (state.name !== 'live') this.#requests.disconnected()
    if (state.name === 'ended') this.#settleAll(state)
    this.#handlers.emit('state', state)
    if (state.name !== 'live' || this.#brought === null) return
    const brought = this.#brought
    this.#brought = null
    for (const ask of brought) this.#handlers.emit('ask', ask)
    this.#handlers.emit('asks', this.asks)
  }

  #settleAll(state: ClientState & { readonly name: 'ended' }): void {
    this.#resume = null
    this.#bookmark.clear()
    this.#requests.end(state)
    this.#turns.end(state)
    this.#ready.reject(errorOf(state))
    if (this.#asks.end(errorOf(state))) this.#handlers.emit('asks', [])
  }

  #received(frame: ServerFrame): void {
    if ('seq' in frame) this.#event(frame)
    else if (frame.type === 'delta') this.#delta(frame)
    else if (frame.type === 'reply') this.#requests.reply(frame)
  }

  #event(event: SessionEvent): void {
    if (event.seq <= this.#seen.seq) return
    const delta = event.type === 'turn.started' ? 0 : this.#seen.delta
    this.#seen = { seq: event.seq, delta }
    this.#turns.event(event)
    this.#handlers.emit('event', event)
    for (const message of clientMessagesOf(event)) this.#handlers.emit('message', message)
    if (event.type === 'ask.opened' || event.type === 'ask.settled') this.#ask(event)
    if (event.type === 'session.closed') {
      this.#connection.end(endingOf('session_closed', `the session is closed: ${event.reason}`))
    }
  }

  #delta(delta: Delta): void {
    if (delta.n <= this.#seen.delta) return
    this.#seen = { seq: this.#seen.seq, delta: delta.n }
    this.#turns.event(delta)
    this.#handlers.emit('delta', delta)
  }

  #ask(event: Extract<SessionEvent, { readonly type: 'ask.opened' | 'ask.settled' }>): void {
    if (event.type === 'ask.opened') {
      const ask = this.#asks.opened(event)
      if (ask === null) return
      this.#handlers.emit('ask', ask)
    } else {
      const own = event.outcome === 'answered' && this.#attachments.has(answerer(event))
      if (!this.#asks.settled(event.ask, own ? event.answer : undefined)) return
    }
    this.#handlers.emit('asks', this.asks)
  }
}

/** Servers of 0.1.0 name the attachment in `by`. */
function answerer({ by, attachment }: { by: unknown; attachment?: string }): string {
  return attachment ?? (typeof by === 'string' ? by : '')
}

/** What the session is created with, if anything was said about it. */
function creation(options: ClientSessionOptions): Hello['options'] {
  const { agent, reconnect, exclusive, graceMs, ttlMs, labels, settings } = options
  const said = { agent, reconnect, exclusive, graceMs, ttlMs, labels, settings }
  return Object.values(said).every((value) => value === undefined) ? undefined : said
}

/** Handlers of events. One that was removed is never called again, not even in this round. */
class Handlers<Events> {
  readonly #handlers = new Set<{
    readonly name: keyof Events
    readonly call: (value: never) => void
  }>()

  /** The returned function removes it. */
  on<Name extends keyof Events>(name: Name, call: (value: Events[Name]) => void): () => void {
    // One function may be registered twice, and removed once.
    const handler = { name, call }
    this.#handlers.add(handler)
    return () => void this.#handlers.delete(handler)
  }

  emit<Name extends keyof Events>(name: Name, value: Events[Name]): void {
    for (const handler of [...this.#handlers]) {
      if (handler.name !== name || !this.#handlers.has(handler)) continue
      try {
        handler.call(value as never)
      } catch (error) {
        // The page's mistake: it is reported there and stops nothing here.
        queueMicrotask(() => {
          throw error
        })
      }
    }
  }

  clear(): void {
    this.#handlers.clear()
  }
}
