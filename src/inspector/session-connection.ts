/**
 * The connection of this page to one session: a watcher, and a driver after its reader takes part.
 * The events of a session that has ended are read over HTTP instead.
 */
import {
  connect,
  type ClientSession,
  type ClientState,
  type Delta,
  type SessionEvent,
} from '../client/index.ts'
import type { SessionView } from '../wire/views.ts'
import { serverUrl } from './address.ts'
import type { Access } from './access.ts'
import type { Api } from './api.ts'
import type { Ended } from './ending.ts'

export type ConnectionListener = {
  readonly changed: (state: ClientState) => void
  readonly learned: (session: SessionView) => void
  /** The log follows again from its beginning. */
  readonly restarted: () => void
  readonly event: (event: SessionEvent) => void
  readonly delta: (delta: Delta) => void
}

export type SessionConnectionOptions = {
  readonly id: string
  readonly link: string | null
  readonly access: Access
  readonly api: Api
  readonly listener: ConnectionListener
}

export class SessionConnection {
  readonly #options: SessionConnectionOptions
  #session: ClientSession | null = null
  #state: ClientState = { name: 'connecting' }
  #info: SessionView | null = null
  #seq = 0

  constructor(options: SessionConnectionOptions) {
    this.#options = options
    this.#attach()
  }

  get state(): ClientState {
    return this.#state
  }

  get info(): SessionView | null {
    return this.#info
  }

  /** A reloaded page keeps its role. */
  get isWatcher(): boolean {
    return this.#session?.role !== 'driver'
  }

  /** Whether its token or link has this scope, as far as is known. */
  may(scope: 'talk' | 'answer' | 'admin'): boolean {
    const scopes = this.#session?.scopes ?? []
    return scopes.includes(scope) || scopes.includes('admin')
  }

  /** Makes this page a driver, if it may, and returns the session. */
  takePart(): ClientSession | null {
    if (this.may('talk')) this.#session?.drive({ answers: this.may('answer') ? ANSWERS : [] })
    return this.#session
  }

  takeOver(): void {
    // The state shows a connection that is refused.
    this.#session?.takeOver().catch(() => undefined)
  }

  /** Attaches again as a watcher. */
  watch(): void {
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
    const client = connect({ url: serverUrl(), ...(token === null ? {} : { token }) })
    const by = link === null ? {} : { link }
    const session = client.session({ id, presence: true, role: 'watcher', ...by })
    this.#session = session
    session.on('event', (event) => this.#event(event))
    session.on('delta', (delta) => this.#options.listener.delta(delta))
    session.on('state', (state) => this.#onState(session, state))
  }

  #onState(session: ClientSession, state: ClientState): void {
    if (session.info !== null) this.#learn(session.info)
    if (state.name !== 'ended') return this.#change(state)
    const isOver = state.code === 'connection_lost' && session.info?.reconnect === 'none'
    this.#end(isOver ? CLOSED : state)
  }

  #end(state: Ended): void {
    this.#change(state)
    if (state.code !== 'unauthorized' && this.#options.link === null) void this.#readAll()
  }

  /** Reads the session, and its log if the connection has not delivered it. */
  async #readAll(): Promise<void> {
    const { api, id } = this.#options
    try {
      this.#learn(await api.session(id))
      if (this.#seq > 0) return
      for await (const event of api.events(id)) this.#event(event)
    } catch {
      // The session does not exist or cannot be reached, which the page shows.
    }
  }

  #event(event: SessionEvent): void {
    const { listener } = this.#options
    if (event.seq <= this.#seq) listener.restarted()
    this.#seq = event.seq
    listener.event(event)
  }

  #learn(info: SessionView): void {
    this.#info = info
    this.#options.listener.learned(info)
  }

  #change(state: ClientState): void {
    this.#state = state
    this.#options.listener.changed(state)
  }
}

/** The kinds of ask that this page answers as a driver. */
const ANSWERS = ['permission']

const CLOSED: Ended = {
  name: 'ended',
  code: 'session_closed',
  reason: 'the session is closed: connection_lost',
  hint: 'start_new',
}
