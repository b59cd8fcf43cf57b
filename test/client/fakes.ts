/** A clock, sockets, a storage and a window that a test owns. */
import {
  connect,
  type Client,
  type ClientClock,
  type ClientSession,
  type ClientSessionOptions,
  type ClientSocket,
  type ClientSocketClass,
  type ClientSocketEvent,
  type ClientStorage,
  type ConnectOptions,
} from '../../src/client/index.ts'

export type Frame = { readonly type: string; readonly [field: string]: any }

export class FakeClock implements ClientClock {
  #now = 1_000_000
  #timers: { readonly at: number; readonly run: () => void }[] = []

  now(): number {
    return this.#now
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run }
    this.#timers.push(timer)
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer)
    }
  }

  /** When the timers will run, from now on, soonest first. */
  get due(): number[] {
    return this.#timers.map(({ at }) => at - this.#now).sort((a, b) => a - b)
  }

  advance(ms: number): void {
    const until = this.#now + ms
    for (;;) {
      const next = this.#timers.toSorted((a, b) => a.at - b.at)[0]
      if (next === undefined || next.at > until) break
      this.#now = next.at
      this.#timers = this.#timers.filter((other) => other !== next)
      next.run()
    }
    this.#now = until
  }
}

type Listener = (event: ClientSocketEvent) => void

/** One socket, with a test at its other end. */
export class FakeSocket implements ClientSocket {
  readonly url: string
  readonly sent: Frame[] = []
  /** Undefined until the client closes it; null: without a code. */
  closedBy: number | null | undefined
  readonly #listeners = new Map<string, Listener[]>()
  #isOpen = false
  /** Like a socket that has been half closed: whatever is sent fails. */
  failing = false
  onSend: (frame: Frame) => void = () => undefined

  constructor(url: string) {
    this.url = url
  }

  addEventListener(type: string, listener: Listener): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener])
  }

  send(data: string): void {
    if (!this.#isOpen || this.failing) throw new Error('InvalidStateError')
    const frame = JSON.parse(data) as Frame
    this.onSend(frame)
    this.sent.push(frame)
  }

  close(code?: number): void {
    this.closedBy ??= code ?? null
  }

  open(): void {
    this.#isOpen = true
    this.#emit('open', {})
  }

  /** One message: a frame, or an array of all. */
  say(...frames: Frame[]): void {
    this.sayText(JSON.stringify(frames.length === 1 ? frames[0] : frames))
  }

  sayText(data: unknown): void {
    this.#emit('message', { data })
  }

  drop(code = 1006, reason = ''): void {
    this.#isOpen = false
    this.#emit('error', {})
    this.#emit('close', { code, reason })
  }

  #emit(type: string, event: ClientSocketEvent): void {
    for (const listener of this.#listeners.get(type) ?? []) listener({ type, ...event })
  }
}

export class FakeStorage implements ClientStorage {
  readonly items = new Map<string, string>()
  getItem(key: string): string | null {
    return this.items.get(key) ?? null
  }
  setItem(key: string, value: string): void {
    this.items.set(key, value)
  }
  removeItem(key: string): void {
    this.items.delete(key)
  }
}

/** A window that has news of the network only. */
export class FakeWindow {
  readonly listeners: { readonly type: string; readonly listener: () => void }[] = []

  addEventListener(type: string, listener: () => void): void {
    this.listeners.push({ type, listener })
  }

  removeEventListener(type: string, listener: () => void): void {
    const at = this.listeners.findIndex((one) => one.type === type && one.listener === listener)
    if (at >= 0) this.listeners.splice(at, 1)
  }

  dispatch(type: string): void {
    for (const one of [...this.listeners]) if (one.type === type) one.listener()
  }
}

/** A client whose every surrounding is a fake. */
export class Bench {
  readonly clock = new FakeClock()
  readonly sockets: FakeSocket[] = []
  readonly client: Client
  /** What the next random number is. */
  random = 1

  constructor(options: ConnectOptions = {}) {
    this.client = connect({
      url: 'http://127.0.0.1:7420',
      webSocket: this.socketClass(),
      storage: null,
      clock: this.clock,
      random: () => this.random,
      ...options,
    })
  }

  socketClass(): ClientSocketClass {
    const { sockets } = this
    return class extends FakeSocket {
      constructor(url: string) {
        super(url)
        sockets.push(this)
      }
    }
  }

  /** The newest socket. */
  get socket(): FakeSocket {
    const socket = this.sockets.at(-1)
    if (socket === undefined) throw new Error('no socket was opened')
    return socket
  }

  /** A session that has been welcomed. */
  live(
    options: ClientSessionOptions = { key: 'chat' },
    changes: Partial<Frame> = {},
  ): ClientSession {
    const session = this.client.session(options)
    this.welcome(changes)
    return session
  }

  /** Opens the newest socket and welcomes whoever is there. */
  welcome(changes: Partial<Frame> = {}): void {
    this.socket.open()
    this.socket.say(welcome(changes))
  }

  /** Lets time pass until the client opens its next socket. */
  next(): FakeSocket {
    const before = this.sockets.length
    while (this.sockets.length === before) {
      const [due] = this.clock.due
      if (due === undefined) throw new Error('the client does not come back')
      this.clock.advance(due)
    }
    return this.socket
  }
}

export function welcome(changes: Partial<Frame> = {}): Frame {
  const { session, ...rest } = changes
  return {
    type: 'welcome',
    v: 1,
    session: { id: 's1', seq: 2, graceMs: 30_000, reconnect: 'resume', state: 'open', ...session },
    attachment: 'at1',
    role: 'driver',
    epoch: 1,
    resume: 'r1',
    after: { seq: 0, delta: 0 },
    isNew: true,
    asks: [],
    pingMs: 10_000,
    deadMs: 25_000,
    ...rest,
  }
}

/** Everything that is ready has happened. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** What a promise came to. */
export async function outcome(promise: PromiseLike<unknown>): Promise<any> {
  try {
    return { value: await promise }
  } catch (error) {
    const { name, code, retry, hint, message } = error as any
    return { error: { name, code, retry, hint, message } }
  }
}
