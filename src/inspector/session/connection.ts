/**
 * The connection of this page to one session: a watcher, and a driver after its reader takes part.
 */
import {
  connect,
  type ClientSession,
  type ClientState,
  type Delta,
  type SessionEvent,
} from '../../client/index.ts'
import { ANSWERED_KINDS } from '../../wire/answers.ts'
import type { SessionView } from '../../wire/views.ts'
import { api } from '../shared/server.ts'
import type { Ended } from './ending.ts'

/** Which session, and by what: a link, or else the token of this tab. */
export type SessionAccess = { readonly id: string; readonly link: string | null }

export type Scope = 'talk' | 'answer' | 'edit' | 'manage'

type ConnectionListener = {
  readonly changed: (state: ClientState) => void
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
  #seq = 0

  constructor(access: SessionAccess, listener: ConnectionListener) {
    this.#access = access
    this.#listener = listener
  }

  /** A reloaded page keeps its role. */
  get isWatcher(): boolean {
    return this.#session?.role !== 'driver'
  }

  /** Whether its token or link has this scope, as far as is known. */
  may(scope: Scope): boolean {
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

  /** Attaches as a watcher, after the events that are known; again, if it was attached before. */
  watch(after: number): void {
    const { id, link } = this.#access
    this.leave()
    this.#seq = after
    this.#listener.changed({ name: 'connecting' })
    const client = connect({ url: api.url, token: api.token ?? undefined })
    const session = client.session({
      ...{ id, presence: true, role: 'watcher', link: link ?? undefined },
      after: after === 0 ? undefined : { seq: after, delta: 0 },
    })
    this.#session = session
    session.on('event', (event) => {
      if (event.seq <= this.#seq) this.#listener.restarted()
      this.#seq = event.seq
      this.#listener.event(event)
    })
    session.on('delta', (delta) => this.#listener.delta(delta))
    session.on('state', (state) => {
      if (session.info !== null) this.#listener.learned(session.info)
      const isOver = state.name === 'ended' && state.code === 'connection_lost'
      const isClosed = isOver && session.info?.reconnect === 'none'
      this.#listener.changed(isClosed ? CLOSED : state)
    })
  }

  leave(): void {
    this.#session?.dispose()
    this.#session = null
  }
}
