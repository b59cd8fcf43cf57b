/**
 * This page and one session: it looks on as a watcher, and becomes a driver when its person takes
 * part. It tells what comes; what is over is read from the log instead.
 */
import {
  connect,
  type ClientSession,
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

  /** A page that was reloaded is what it was before. */
  get isWatcher(): boolean {
    return this.#session?.role !== 'driver'
  }

  /** Whether its token or link lets it do this, as far as is known. */
  may(scope: 'talk' | 'answer' | 'admin'): boolean {
    const scopes = this.#session?.scopes ?? []
    return scopes.includes(scope) || scopes.includes('admin')
  }

  /** The session, to do something in it: from now on this page is one of its drivers. */
  takePart(): ClientSession | null {
    if (this.may('talk')) this.#session?.drive({ answers: this.may('answer') ? ANSWERS : [] })
    return this.#session
  }

  takeOver(): void {
    // A connection that is refused is shown by its own state.
    this.#session?.takeOver().catch(() => undefined)
  }

  /** Again from the start, to look on. */
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
    const client = connect(token === null ? {} : { token })
    const by = link === null ? {} : { link }
    const session = client.session({ id, presence: true, role: 'watcher', ...by })
    this.#session = session
    session.on('event', (event) => this.#event(event))
    session.on('delta', (delta) => this.#options.owner.delta(delta))
    session.on('state', (state) => this.#clientOnState(session, state))
  }

  #clientOnState(session: ClientSession, state: ClientState): void {
    if (session.info !== null) this.#learn(session.info)
    if (state.name !== 'ended') return this.#change(state)
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

/** The kinds of ask that this page answers, if it takes part and may. */
const ANSWERS = ['permission']

const GONE: Ended = {
  name: 'ended',
  code: 'session_closed',
  reason: 'the session is closed: connection_lost',
  hint: 'start_new',
}
