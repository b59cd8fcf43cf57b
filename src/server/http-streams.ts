/**
 * The streamable HTTP transport of ACP, as a socket. The client's messages come in requests, and it
 * is answered in event streams: one of the connection, and one of each session that it opens.
 *
 * 1. What is about a session goes to its stream, once the client has opened that or has been told
 *    the session's id; everything else goes to the stream of the connection. So the replay of a log
 *    comes before the response to the request that asked for it.
 * 2. Nobody confirms what a stream has sent. If the stream of a session ends, the session is lost
 *    to the client, which resumes it; if that of the connection ends, so does the connection.
 */
import { HoldfastError } from '../core/index.ts'
import { isRecord } from '../schema/contract.ts'
import type { AcpSocket } from '../doors/acp/connection.ts'
import type { RpcMessage } from '../doors/json-rpc.ts'
import type { WatchedSocket } from './watched-sockets.ts'

export type HttpStreamsOptions = {
  readonly address: string
  /** The stream of a session was cut. */
  readonly onSessionLost: (session: string) => void
  readonly onClose: (code: number) => void
  readonly reportSlow: () => void
}

/** Streams of one connection, for all the sessions that it may have open, and some more. */
const STREAMS_MAX = 256
/** What is ready is sent together, up to so many characters. */
const TEXT_CHARS_MAX = 262_144
const ABNORMAL = 1006

export class HttpStreams implements AcpSocket, WatchedSocket {
  readonly address: string
  /** When it began to wait for its stream; null: the client has opened that. */
  heardAt: number | null = performance.now()
  readonly isPaused = false
  readonly #options: HttpStreamsOptions
  readonly #own = new EventStream()
  readonly #sessions = new Map<string, EventStream>()
  /** Of requests without an answer, by their ids as JSON; null: the session is lost meanwhile. */
  readonly #sessionOf = new Map<string, string | null>()
  /** The first message: it answers the request that opens the connection. */
  readonly greeting: Promise<string>
  #greet: ((text: string) => void) | null = null
  #refuse: (error: HoldfastError) => void = () => undefined
  #isClosed = false

  constructor(options: HttpStreamsOptions) {
    this.address = options.address
    this.#options = options
    this.greeting = new Promise((resolve, reject) => {
      this.#greet = resolve
      this.#refuse = reject
    })
    // It may be over before anything waits for it.
    this.greeting.catch(() => undefined)
  }

  get #all(): readonly EventStream[] {
    return [this.#own, ...this.#sessions.values()]
  }

  get bufferedBytes(): number {
    return this.#all.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  /** A message of the client: its answer goes where its session is told of. */
  took(message: RpcMessage): void {
    if (message.type !== 'request') return
    const session = sessionIn(message.params)
    if (session !== null) this.#sessionOf.set(JSON.stringify(message.id), session)
  }

  send(data: string | Uint8Array, sent: () => void = () => undefined): void {
    const text = typeof data === 'string' ? data : Buffer.from(data).toString()
    if (this.#greet !== null) {
      this.#greet(text)
      this.#greet = null
      return sent()
    }
    const stream = this.#isClosed ? null : this.#streamFor(JSON.parse(text) as Sent)
    if (stream === null) return sent()
    stream.push(text, sent)
  }

  /** Null: it is the answer to what a client asked that has lost the session since. */
  #streamFor({ id, method, params, result }: Sent): EventStream | null {
    if (method !== undefined) return this.#known(sessionIn(params) ?? sessionOfAsk(params))
    const name = JSON.stringify(id)
    const asked = this.#sessionOf.get(name)
    this.#sessionOf.delete(name)
    if (asked === null) return null
    const stream = this.#known(asked)
    const opened = sessionIn(result)
    const hasRoom = this.#sessions.size < STREAMS_MAX
    if (opened !== null && hasRoom && !this.#sessions.has(opened)) {
      this.#sessions.set(opened, new EventStream())
    }
    return stream
  }

  #known(session: string | null | undefined): EventStream {
    return this.#sessions.get(session ?? '') ?? this.#own
  }

  /** What a stream has to say until `signal` is aborted. Null: that of the connection. */
  read(session: string | null, signal: AbortSignal): AsyncIterable<string> {
    const stream = session === null ? this.#openOwn() : this.#openFor(session)
    const lost = (): void => {
      if (session === null) this.#end(ABNORMAL, '')
      else this.#lose(session, stream)
    }
    stream.isOpen = true
    if (signal.aborted) lost()
    else signal.addEventListener('abort', lost, { once: true })
    return stream.texts()
  }

  #openOwn(): EventStream {
    if (this.#own.isOpen) throw new HoldfastError('in_use', 'the stream is open already')
    this.heardAt = null
    return this.#own
  }

  /** A client may know sooner than this server that the stream before was cut. */
  #openFor(session: string): EventStream {
    const known = this.#sessions.get(session)
    if (known?.isOpen === true) this.#lose(session, known)
    else if (known !== undefined) return known
    if (this.#sessions.size >= STREAMS_MAX) {
      throw new HoldfastError('too_many', `a connection has at most ${STREAMS_MAX} streams`)
    }
    const stream = new EventStream()
    this.#sessions.set(session, stream)
    return stream
  }

  #lose(session: string, stream: EventStream): void {
    if (this.#sessions.get(session) !== stream) return
    this.#sessions.delete(session)
    stream.end()
    for (const [id, asked] of this.#sessionOf) {
      if (asked === session) this.#sessionOf.set(id, null)
    }
    this.#options.onSessionLost(session)
  }

  /** An open stream is a connection that the system watches, and that is written to regularly. */
  ping(): void {}

  close(code: number, reason: string): void {
    this.#end(code, `: closed ${code} ${reason}\n\n`)
  }

  cut(): void {
    this.#end(ABNORMAL, '')
  }

  cutSlow(): void {
    this.#options.reportSlow()
    this.cut()
  }

  #end(code: number, lastWords: string): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#refuse(new HoldfastError('cancelled', 'the connection is closed'))
    for (const stream of this.#all) {
      if (code === ABNORMAL) stream.drop()
      stream.end(lastWords)
    }
    this.#options.onClose(code)
  }
}

/** A message of the server, as far as its stream follows from it. */
type Sent = {
  readonly id?: unknown
  readonly method?: string
  readonly params?: unknown
  readonly result?: unknown
}

function sessionIn(value: unknown): string | null {
  const session = isRecord(value) ? value['sessionId'] : undefined
  return typeof session === 'string' ? session : null
}

/** A request to the client begins with its session; what cancels it must not overtake it. */
function sessionOfAsk(params: unknown): string | null {
  const id = isRecord(params) ? params['requestId'] : undefined
  return typeof id === 'string' ? (id.split('/', 1)[0] ?? null) : null
}

type Waiting = { readonly text: string; readonly bytes: number; readonly sent: () => void }

/** Messages on their way to one stream, which may not be open yet. */
class EventStream {
  isOpen = false
  bytes = 0
  #waiting: Waiting[] = []
  #isEnded = false
  #lastWords = ''
  #wake: () => void = () => undefined

  push(text: string, sent: () => void): void {
    if (this.#isEnded) return sent()
    const bytes = Buffer.byteLength(text)
    this.bytes += bytes
    this.#waiting.push({ text, bytes, sent })
    this.#wake()
  }

  /** After what waits. */
  end(lastWords = ''): void {
    this.#isEnded = true
    this.#lastWords = lastWords
    if (!this.isOpen) this.drop()
    this.#wake()
  }

  drop(): void {
    this.#done(this.#waiting.splice(0))
  }

  #done(messages: readonly Waiting[]): void {
    for (const { bytes, sent } of messages) {
      this.bytes -= bytes
      sent()
    }
  }

  async *texts(): AsyncGenerator<string> {
    for (;;) {
      const ready = this.#take()
      try {
        // When it is asked for more, this has left.
        if (ready.length > 0) yield ready.map(({ text }) => `data: ${text}\n\n`).join('')
      } finally {
        this.#done(ready)
      }
      if (this.#waiting.length > 0) continue
      if (this.#isEnded) break
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
    if (this.#lastWords !== '') yield this.#lastWords
  }

  #take(): readonly Waiting[] {
    let chars = 0
    const end = this.#waiting.findIndex(({ text }) => (chars += text.length) > TEXT_CHARS_MAX)
    return this.#waiting.splice(0, end === -1 ? this.#waiting.length : Math.max(end, 1))
  }
}
