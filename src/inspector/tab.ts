/**
 * A browser tab in miniature, for the reload test: a storage and sockets of its own, which can be
 * reloaded, copied, cut off or left half open, all inside one page.
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
} from '../client/index.ts'

export type TabOptions = { readonly session: string; readonly token: string | null }

export class Tab {
  readonly session: ClientSession
  readonly events: SessionEvent[] = []
  readonly deltas: Delta[] = []
  readonly #options: TabOptions
  readonly #kept: Map<string, string>
  readonly #sockets = new Set<WebSocket>()
  readonly #waiting = new Set<() => void>()
  /** The page is gone: it neither hears nor says nor remembers anything. */
  #isGone = false

  constructor(options: TabOptions, kept: Map<string, string> = new Map()) {
    this.#options = options
    this.#kept = kept
    const { session: id, token } = options
    const client = connect({
      webSocket: this.#socketClass(),
      storage: this.#storage(),
      ...(token === null ? {} : { token }),
    })
    this.session = client.session({ id, presence: true })
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

  /** The page goes, its storage stays: what a reload does. */
  reload(): Tab {
    this.#unload()
    for (const socket of this.#sockets) socket.close()
    return new Tab(this.#options, this.#kept)
  }

  /** Like a reload, but nobody tells the server that the old connection is gone. */
  reloadHalfOpen(): Tab {
    this.#unload()
    return new Tab(this.#options, this.#kept)
  }

  /** A second tab with a copy of this one's storage. */
  copy(): Tab {
    return new Tab(this.#options, new Map(this.#kept))
  }

  /** The page goes; `again` is the reload that comes later. */
  unload(): { readonly again: () => Tab } {
    this.#unload()
    for (const socket of this.#sockets) socket.close()
    return { again: () => new Tab(this.#options, this.#kept) }
  }

  /** The network takes the socket away, and the page is still there. */
  drop(): void {
    for (const socket of this.#sockets) socket.close()
  }

  /** Leaves for good. */
  close(): void {
    this.session.dispose()
    for (const socket of this.#sockets) socket.close()
  }

  /** Resolves when the condition holds; it is looked at whenever something happens. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiting.add(resolve))
  }

  /** Live again, or over. */
  settled(): Promise<void> {
    return this.until(() => this.state.name === 'live' || this.state.name === 'ended')
  }

  #wake(): void {
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  #unload(): void {
    this.#isGone = true
    // Only ends its timers: it can no longer say anything.
    this.session.dispose()
  }

  #storage(): ClientStorage {
    return {
      getItem: (key) => this.#kept.get(key) ?? null,
      setItem: (key, value) => {
        if (!this.#isGone) this.#kept.set(key, value)
      },
      removeItem: (key) => {
        if (!this.#isGone) this.#kept.delete(key)
      },
    }
  }

  #socketClass(): ClientSocketClass {
    const isGone = (): boolean => this.#isGone
    const sockets = this.#sockets
    return class implements ClientSocket {
      readonly #socket: WebSocket

      constructor(url: string) {
        this.#socket = new WebSocket(url)
        sockets.add(this.#socket)
        this.#socket.addEventListener('close', () => sockets.delete(this.#socket))
      }

      send(data: string): void {
        if (!isGone()) this.#socket.send(data)
      }

      close(code?: number): void {
        if (!isGone()) this.#socket.close(code)
      }

      addEventListener(...[type, listener]: Parameters<ClientSocket['addEventListener']>): void {
        this.#socket.addEventListener(type, (event) => {
          if (!isGone()) listener(event)
        })
      }
    }
  }
}
