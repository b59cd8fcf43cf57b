/**
 * A simulated browser tab for the reload test, with its own storage and sockets. It can be
 * reloaded, copied, disconnected or left half open, inside one page.
 */
import {
  connect,
  type ClientSession,
  type ClientSocket,
  type ClientSocketClass,
  type ClientState,
  type ClientStorage,
  type Delta,
  type SessionEvent,
} from '../../client/index.ts'
import { api } from '../shared/server.ts'

export class SimulatedTab {
  readonly session: ClientSession
  readonly events: SessionEvent[] = []
  readonly deltas: Delta[] = []
  /** All tabs that come from the same one. */
  readonly family: SimulatedTab[]
  readonly #id: string
  readonly #stored: Map<string, string>
  readonly #sockets = new Set<WebSocket>()
  readonly #waiting = new Set<() => void>()
  /** The page was unloaded: it receives, sends and stores nothing. */
  #isUnloaded = false

  constructor(session: string, stored = new Map<string, string>(), family: SimulatedTab[] = []) {
    this.family = family
    this.family.push(this)
    this.#id = session
    this.#stored = stored
    const client = connect({
      url: api.url,
      webSocket: this.#socketClass(),
      storage: this.#storage(),
      token: api.token ?? undefined,
    })
    this.session = client.session({ id: session, presence: true })
    this.session.on('event', (event) => {
      this.events.push(event)
      this.#wake()
    })
    this.session.on('delta', (delta) => {
      this.deltas.push(delta)
      this.#wake()
    })
    this.session.on('state', () => this.#wake())
  }

  get state(): ClientState {
    return this.session.state
  }

  /** Unloads the page and opens it again; half open: the server does not learn of its end. */
  reload(isHalfOpen = false): SimulatedTab {
    this.unload(isHalfOpen)
    return this.again()
  }

  /** A second tab with a copy of this one's storage. */
  copy(): SimulatedTab {
    return new SimulatedTab(this.#id, new Map(this.#stored), this.family)
  }

  unload(isHalfOpen = false): void {
    this.#isUnloaded = true
    // This only ends its timers, since an unloaded page sends nothing.
    this.session.dispose()
    if (!isHalfOpen) this.drop()
  }

  /** Opens the page with the same storage. */
  again(): SimulatedTab {
    return new SimulatedTab(this.#id, this.#stored, this.family)
  }

  /** Closes the sockets; the page stays open. */
  drop(): void {
    for (const socket of this.#sockets) socket.close()
  }

  close(): void {
    this.session.dispose()
    this.drop()
  }

  /** Resolves when the condition holds; it is checked after every event and change of state. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiting.add(resolve))
  }

  /** Resolves with the tab when it is live or has ended. */
  async settled(): Promise<this> {
    await this.until(() => this.state.name === 'live' || this.state.name === 'ended')
    return this
  }

  #wake(): void {
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  #storage(): ClientStorage {
    return {
      getItem: (key) => this.#stored.get(key) ?? null,
      setItem: (key, value) => {
        if (!this.#isUnloaded) this.#stored.set(key, value)
      },
      removeItem: (key) => {
        if (!this.#isUnloaded) this.#stored.delete(key)
      },
    }
  }

  #socketClass(): ClientSocketClass {
    const isUnloaded = (): boolean => this.#isUnloaded
    const sockets = this.#sockets
    return class implements ClientSocket {
      readonly #socket: WebSocket

      constructor(url: string) {
        this.#socket = new WebSocket(url)
        sockets.add(this.#socket)
        this.#socket.addEventListener('close', () => sockets.delete(this.#socket))
      }

      send(data: string): void {
        if (!isUnloaded()) this.#socket.send(data)
      }

      close(code?: number): void {
        if (!isUnloaded()) this.#socket.close(code)
      }

      addEventListener(...[type, listener]: Parameters<ClientSocket['addEventListener']>): void {
        this.#socket.addEventListener(type, (event) => {
          if (!isUnloaded()) listener(event)
        })
      }
    }
  }
}
