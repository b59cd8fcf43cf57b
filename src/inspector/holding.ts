/**
 * This page's hold on one session: attaches with as much as its token or link allows, and tells
 * what comes. What is over is read from the log instead.
 */
import {
  connect,
  type ClientSession,
  type ClientSessionOptions,
  type ClientState,
  type Delta,
  type SessionEvent,
} from '../client/index.ts'
import type { SessionView } from '../wire/views.ts'
import type { Access } from './access.ts'
import type { Api } from './api.ts'
import type { Ended } from './ending.ts'

export type HoldingOwner = {
  readonly changed: (state: ClientState) => void
  readonly learned: (session: SessionView) => void
  /** The log comes again from its beginning. */
  readonly restarted: () => void
  readonly event: (event: SessionEvent) => void
  readonly delta: (delta: Delta) => void
}

type Manner = Pick<ClientSessionOptions, 'role' | 'answers'>

const WATCHING: Manner = { role: 'watcher', answers: [] }
/** From all that one may want to the least that one may be allowed. */
const MANNERS: readonly Manner[] = [
  { role: 'driver', answers: ['permission'] },
  { role: 'driver', answers: [] },
  { role: 'watcher', answers: ['permission'] },
  WATCHING,
]

export type HoldingOptions = {
  readonly id: string
  readonly link: string | null
  readonly access: Access
  readonly api: Api
  readonly owner: HoldingOwner
}

export class Holding {
  readonly #options: HoldingOptions
  #session: ClientSession | null = null
  #manners: readonly Manner[] = MANNERS
  #state: ClientState = { name: 'connecting' }
  #info: SessionView | null = null
  #seq = 0

  constructor(options: HoldingOptions) {
    this.#options = options
    this.#attach()
  }

  get state(): ClientState {
    return this.#state
  }

  get info(): SessionView | null {
    return this.#info
  }

  /** A page that was reloaded is what it was before, whatever it asks for. */
  get isWatcher(): boolean {
    return (this.#session?.role ?? this.#manners[0]?.role) === 'watcher'
  }

  /** Null unless the session can be talked to. */
  get session(): ClientSession | null {
    return this.#session
  }

  takeOver(): void {
    this.#session?.takeOver().catch(() => undefined)
  }

  watch(): void {
    this.#manners = [WATCHING]
    this.#attach()
  }

  /** Again from the start, as after a new token. */
  retry(): void {
    this.#manners = MANNERS
    this.#attach()
  }

  leave(): void {
    this.#session?.dispose()
    this.#session = null
  }

  #attach(): void {
    const { id, link, access } = this.#options
    const { token } = access
    this.leave()
    this.#change({ name: 'connecting' })
    const client = connect(token === null ? {} : { token })
    const manner = this.#manners[0] ?? WATCHING
    const session = client.session({
      id,
      presence: true,
      ...manner,
      ...(link === null ? {} : { link }),
    })
    this.#session = session
    session.on('event', (event) => this.#event(event))
    session.on('delta', (delta) => this.#options.owner.delta(delta))
    session.on('state', (state) => this.#clientOnState(session, state))
  }

  #clientOnState(session: ClientSession, state: ClientState): void {
    if (session.info !== null) this.#learn(session.info)
    if (state.name !== 'ended') return this.#change(state)
    if (state.code === 'forbidden' && this.#manners.length > 1) {
      this.#manners = this.#manners.slice(1)
      return this.#attach()
    }
    const isOver = state.code === 'connection_lost' && session.info?.reconnect === 'none'
    this.#end(isOver ? GONE : state)
  }

  #end(state: Ended): void {
    this.#change(state)
    if (state.code !== 'unauthorized' && this.#options.link === null) void this.#readAll()
  }

  /** The session as it is, and its log as far as it did not come over the connection. */
  async #readAll(): Promise<void> {
    const { api, id } = this.#options
    try {
      this.#learn(await api.session(id))
      if (this.#seq > 0) return
      for await (const events of api.events(id)) for (const event of events) this.#event(event)
    } catch {
      // There is none, or it cannot be reached: the page has said so.
    }
  }

  #event(event: SessionEvent): void {
    const { owner } = this.#options
    if (event.seq <= this.#seq) owner.restarted()
    this.#seq = event.seq
    owner.event(event)
  }

  #learn(info: SessionView): void {
    this.#info = info
    this.#options.owner.learned(info)
  }

  #change(state: ClientState): void {
    this.#state = state
    this.#options.owner.changed(state)
  }
}

const GONE: Ended = {
  name: 'ended',
  code: 'session_closed',
  reason: 'the session is closed: connection_lost',
  hint: 'start_new',
}
