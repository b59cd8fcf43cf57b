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
import { ANSWERED_KINDS } from '../wire/answers.ts'
import type { SessionView } from '../wire/views.ts'
import type { Api } from './api.ts'
import type { Ended } from './ending.ts'

/** Which session, and by what: a link, or else the token of this tab. */
export type SessionAccess = {
  readonly id: string
  readonly link: string | null
  readonly api: Api
}

type ConnectionListener = {
  readonly changed: () => void
  readonly learned: (session: SessionView) => void
  /** The log follows again from its beginning. */
  readonly restarted: () => void
  readonly event: (event: SessionEvent) => void
  readonly delta: (delta: Delta) => void
}

const CLOSED: Ended = {
  name: 'ended',
  code: 'session_closed',
  reason: 'the session is closed: connection_lost',
  hint: 'start_new',
}

export class SessionConnection {
  readonly #access: SessionAccess
  readonly #listener: ConnectionListener
  #session: ClientSession | null = null
  state: ClientState = { name: 'connecting' }
  info: SessionView | null = null
  #seq = 0

  constructor(access: SessionAccess, listener: ConnectionListener) {
    this.#access = access
    this.#listener = listener
    this.watch()
  }

  /** A reloaded page keeps its role. */
  get isWatcher(): boolean {
    return this.#session?.role !== 'driver'
  }

  /** Whether its token or link has this scope, as far as is known. */
  may(scope: 'talk' | 'answer' | 'edit' | 'manage'): boolean {
    const scopes = this.#session?.scopes ?? []
    return scopes.includes(scope) || scopes.includes('admin')
  }

  /** Makes this page a driver, if it may, and returns the session. */
  takePart(): ClientSession | null {
    if (this.may('talk'))
      this.#session?.drive({ answers: this.may('answer') ? ANSWERED_KINDS : [] })
    return this.#session
  }

  takeOver(): void {
    // The state shows a connection that is refused.
    this.#session?.takeOver().catch(() => undefined)
  }

  /** Attaches as a watcher; again, if it was attached before. */
  watch(): void {
    const { id, link, api } = this.#access
    this.leave()
    this.#change({ name: 'connecting' })
    const client = connect({ url: api.url, token: api.token ?? undefined })
    const role = 'watcher'
    const session = client.session({ id, presence: true, role, link: link ?? undefined })
    this.#session = session
    session.on('event', (event) => this.#event(event))
    session.on('delta', (delta) => this.#listener.delta(delta))
    session.on('state', (state) => {
      if (session.info !== null) this.#learn(session.info)
      const isEnded = state.name === 'ended'
      const isOver = isEnded && state.code === 'connection_lost'
      this.#change(isOver && session.info?.reconnect === 'none' ? CLOSED : state)
      if (isEnded && state.code !== 'unauthorized' && link === null) void this.#readAll()
    })
  }

  leave(): void {
    this.#session?.dispose()
    this.#session = null
  }

  /** Reads the session, and its log if the connection has not delivered it. */
  async #readAll(): Promise<void> {
    const { api, id } = this.#access
    try {
      this.#learn(await api.session(id))
      if (this.#seq > 0) return
      for await (const event of api.events(id)) this.#event(event)
    } catch {
      // The session does not exist or cannot be reached, which the page shows.
    }
  }

  #event(event: SessionEvent): void {
    if (event.seq <= this.#seq) this.#listener.restarted()
    this.#seq = event.seq
    this.#listener.event(event)
  }

  #learn(info: SessionView): void {
    this.info = info
    this.#listener.learned(info)
  }

  #change(state: ClientState): void {
    this.state = state
    this.#listener.changed()
  }
}
