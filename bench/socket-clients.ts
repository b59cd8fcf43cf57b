/** Many clients in one process: they count what they hear, and come back when they are dropped. */
import { WebSocket } from 'ws'
import { loadPeer } from './peers.ts'
import { nowMs, type ClientOrder, type Judgement, type Kind } from './socket-protocol.ts'

const kind = process.argv[2] as Kind
const port = process.argv[3] ?? ''
/** How many share one session of Holdfast's. */
const PER_SESSION = 1_000

/** One client's connection, in whatever way its kind makes it. */
abstract class Client {
  readonly index: number
  /** The number of the last message. */
  n = 0
  heard = 0
  lost = 0
  doubled = 0
  /**
   * When its connection was open again: the same moment for all kinds, whatever they say first over
   * it. It is back once it has heard something newer.
   */
  openAt = 0
  isBack = true

  constructor(index: number) {
    this.index = index
  }

  abstract connect(): void
  abstract drop(): void

  /** A message whose text is `<n> <time> …`. */
  hear(text: string): void {
    const n = Number.parseInt(text, 10)
    if (!Number.isInteger(n) || n === 0) return
    this.heard += 1
    if (n <= this.n) this.doubled += 1
    else {
      this.lost += n - this.n - 1
      this.n = n
    }
    if (!this.isBack && this.openAt > 0 && Number(text.split(' ', 2)[1]) > this.openAt) {
      this.isBack = true
      arrived()
    }
  }

  /** Several messages, of which only the last one matters. */
  hearLast(data: Buffer): void {
    const start = data.lastIndexOf('"text":"')
    if (start < 0) return
    const n = Number.parseInt(data.toString('latin1', start + 8, start + 20), 10)
    if (n > this.n) this.n = n
  }
}

class SocketClient extends Client {
  protected socket: WebSocket | null = null

  connect(): void {
    const path = kind === 'holdfast' ? '/v1/connect' : '/'
    const options = { perMessageDeflate: false, skipUTF8Validation: true }
    const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, options)
    this.socket = socket
    socket.on('open', () => {
      this.openAt = nowMs()
      this.opened(socket)
    })
    socket.on('message', (data: Buffer) => this.received(data))
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (!this.isBack) this.connect()
    })
  }

  protected opened(socket: WebSocket): void {
    socket.send(JSON.stringify({ after: this.n }))
    arrived()
  }

  protected received(data: Buffer): void {
    // Reading a thousand copies of everything would measure this process instead of the server.
    if (isCounting && this.index >= READERS) {
      this.hearLast(data)
      return progressed(this.n)
    }
    const value = JSON.parse(String(data)) as Frame | Frame[]
    for (const frame of Array.isArray(value) ? value : [value]) this.take(frame)
    progressed(this.n)
  }

  protected take({ text }: Frame): void {
    if (text !== undefined) this.hear(text)
  }

  drop(): void {
    this.socket?.terminate()
  }
}

type Frame = {
  readonly type?: string
  readonly text?: string
  readonly seq?: number
  readonly n?: number
  readonly session?: { readonly id: string }
  readonly attachment?: string
  readonly resume?: string
  readonly epoch?: number
}

class HoldfastClient extends SocketClient {
  #session = ''
  #resume: object | null = null
  #seq = 0
  #delta = 0

  protected override opened(socket: WebSocket): void {
    const key = `bench-${Math.floor(this.index / PER_SESSION)}`
    const who =
      this.#resume === null ? { key } : { session: this.#session, auth: { resume: this.#resume } }
    const after = { seq: this.#seq, delta: this.#delta }
    socket.send(JSON.stringify({ type: 'hello', v: 1, ...who, after }))
  }

  protected override take(frame: Frame): void {
    const { type, text, seq, n } = frame
    if (seq !== undefined) this.#seq = seq
    if (type === 'turn.started') this.#delta = 0
    if (type === 'delta') this.#delta = n ?? 0
    if (text !== undefined) this.hear(text)
    if (type === 'welcome') this.#welcome(frame)
    if (type === 'ping') this.socket?.send('{"type":"pong"}')
  }

  #welcome({ session, attachment, resume: token, epoch }: Frame): void {
    this.#session = session?.id ?? ''
    this.#resume = { attachment, token }
    this.socket?.send(JSON.stringify({ type: 'ready', epoch }))
    arrived()
  }
}

type IoSocket = {
  on(event: string, listener: (value: Frame) => void): void
  readonly io: {
    readonly engine: { close(): void }
    on(event: 'open', listener: () => void): void
  }
}
type Connect = (url: string, options: object) => IoSocket

class IoClient extends Client {
  #socket: IoSocket | null = null

  connect(): void {
    const { io } = loadPeer('socket.io-client') as { io: Connect }
    const delays = { reconnectionDelay: 1, reconnectionDelayMax: 1, randomizationFactor: 0 }
    const options = { transports: ['websocket'], forceNew: true, ...delays }
    this.#socket = io(`http://127.0.0.1:${port}`, options)
    this.#socket.io.on('open', () => {
      this.openAt = nowMs()
    })
    this.#socket.on('connect', arrived)
    this.#socket.on('m', ({ text = '' }) => {
      this.hear(text)
      progressed(this.n)
    })
  }

  drop(): void {
    this.#socket?.io.engine.close()
  }
}

/** Clients that read everything even while the others only count. */
const READERS = 10
const clients: Client[] = []
let isCounting = false
let awaited = Number.POSITIVE_INFINITY
let atEnd = 0
let check: () => void = () => undefined

function arrived(): void {
  check()
}

/** Somebody has message `n`: perhaps everybody has the one that is waited for. */
function progressed(n: number): void {
  if (n < awaited) return
  atEnd += 1
  check()
}

function newClient(index: number): Client {
  if (kind === 'socketio') return new IoClient(index)
  return kind === 'holdfast' ? new HoldfastClient(index) : new SocketClient(index)
}

/** Answers once the condition holds; looked at whenever something has happened. */
function answerWhen(condition: () => boolean, answer: () => unknown): void {
  check = () => {
    if (!condition()) return
    check = () => undefined
    process.send?.(answer())
  }
  check()
}

/** So many at a time: a listen queue is not endless. */
function open(count: number): void {
  const target = clients.length + count
  let inside = clients.length
  const more = (): void => {
    while (clients.length < target && clients.length < inside + 200) {
      const client = newClient(clients.length)
      clients.push(client)
      client.connect()
    }
  }
  check = () => {
    inside += 1
    if (inside < target) return more()
    check = () => undefined
    process.send?.('open')
  }
  more()
}

function obey(order: ClientOrder): void {
  switch (order.type) {
    case 'open':
      return open(order.count)
    case 'await':
      isCounting = order.counts
      awaited = order.n
      atEnd = clients.filter(({ n }) => n >= order.n).length
      return answerWhen(() => atEnd >= clients.length, nowMs)
    case 'drop': {
      const droppedAt = nowMs()
      for (const client of clients) {
        client.isBack = false
        client.openAt = 0
      }
      for (const client of clients) client.drop()
      return answerWhen(
        () => clients.every(({ isBack }) => isBack),
        () => nowMs() - droppedAt,
      )
    }
    case 'judge': {
      const sum = (field: 'lost' | 'doubled' | 'heard'): number =>
        clients.reduce((total, client) => total + client[field], 0)
      const judgement: Judgement = {
        lost: sum('lost'),
        doubled: sum('doubled'),
        heard: sum('heard'),
      }
      process.send?.(judgement)
    }
  }
}

process.on('message', obey)
process.send?.('ready')
