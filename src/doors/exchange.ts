/**
 * One request and its answer. Every answer of a door leaves through here, so that all carry the
 * same headers and are counted.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  HoldfastError,
  type Histogram,
  type Holdfast,
  type SessionHandle,
  type TurnOptions,
  type Unbound,
  type DiagnosticCode,
} from '../core/index.ts'
import { EVENT_STREAM_TYPE } from '../wire/server-sent-events.ts'
import { sessionPath } from '../wire/views.ts'
import { reportRefusal, type Headers, type Refusal } from './refusals.ts'
import {
  OPERATIONS,
  principalsOf,
  type Caller,
  type Operation,
  type Scope,
} from '../core/access.ts'
import { bodyTooLarge, hasBody, readerOf, type BodyRoom, type LargeBodies } from './request-body.ts'
import type { Unread } from './unread.ts'

/** What all exchanges of a server share. */
export type ServerContext = {
  readonly holdfast: Unbound
  /** What comes before every path of this server, as `/holdfast`; empty: nothing does. */
  readonly basePath: string
  readonly bodyBytesMax: () => number
  /** What a body may have besides, where a turn's input may have images and files. */
  readonly partsBytesMax: () => number
  /** The room for bodies that are larger than usual. */
  readonly largeBodies: LargeBodies
  /** Between two signs of life on a stream that has nothing to say. */
  readonly heartbeatMs: number
  /** Answers given, by status. */
  readonly answered: Map<number, number>
  /** Requests and sockets that came to the wrong node, by what became of them. */
  readonly forwards?: Readonly<Record<string, number>>
  readonly forwardTimes?: Histogram
  /** The server, or the Holdfast behind it, is about to close. */
  readonly isDraining: () => boolean
  /** What the operator should change about a server that works, by the code of its diagnostic. */
  readonly warnings: () => readonly DiagnosticCode[]
  /** Ends each stream that is open, because the server stops. */
  readonly streams: Set<() => void>
  /** What waits for readers, of all exchanges and sockets together. */
  readonly unread: Unread
  /** How this request is refused: each protocol has its own way. */
  readonly refusalOf: (error: HoldfastError, request: IncomingMessage) => Refusal
  /** Where a request comes from, also behind a proxy. */
  readonly addressOf: (request: IncomingMessage) => string
  readonly sockets: () => number
  readonly positions: HiddenPositions
  /** The browsers behind the server, each as JSON and in numbers; null where it has none. */
  readonly browsers: () => {
    browsers(caller: Caller): Promise<readonly object[]>
    countsNow(): Readonly<Record<string, number>>
    screenshot(exchange: Exchange, page?: string): Promise<Uint8Array>
    sendTicketFor(exchange: Exchange): Promise<void>
  } | null
}

/** Positions and cursors for callers that do not see all sessions: they tell nothing. */
export interface HiddenPositions {
  hide(position: number): Promise<number>
  reveal(hidden: number): Promise<number>
  hideCursor(cursor: string): Promise<string>
  revealCursor(hidden: string): Promise<string>
}

/** What a request asks for, as its path says, and on whose behalf. */
export type RoutedRequest = {
  /** Null: unknown, so that only public routes can be used. */
  readonly caller: Caller | null
  readonly params: readonly string[]
  readonly search: string
  readonly route?: {
    readonly operation: Operation
    readonly historyBytesMax?: number
    readonly takesParts?: boolean
  }
}

const NOT_ROUTED: RoutedRequest = { caller: null, params: [], search: '' }

/** How long a reader may take to make room; then it is cut off, and may come back. */
const STALLED_MS = 25_000
/** A larger answer is sent in parts: a slow reader takes one at times, a stalled one none. */
const PART_BYTES = 65_536
/** How long the rest of a refused body is thrown away, so that its sender reads the refusal. */
const DISCARD_MS = 2_000

function revokedError(): HoldfastError {
  return new HoldfastError('unauthorized', 'the token is no longer good for this')
}

const JSON_TYPE = 'application/json'
const POLICY = 'Content-Security-Policy'
/** Nothing of an answer is kept, guessed at, framed, or named to the next site. */
const SAFETY: Headers = Object.entries({
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
}).flat()
/** Of all that is no page: a browser that shows it loads and runs nothing. */
const STRICTEST: Headers = [POLICY, "default-src 'none'; frame-ancestors 'none'"]

export class Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly context: ServerContext
  /** What the path had in place of the route's parameters, decoded. */
  readonly params: readonly string[]
  readonly search: string
  readonly operation: Operation | null
  /**
   * Set once the request has had an effect. From then on no other node may answer it instead: what
   * was done would be done again (I11).
   */
  isCommitted = false
  /** On whose behalf it is; null: unknown. */
  readonly caller: Caller | null
  /** It ends when its token loses one of these. */
  readonly heldBy: Scope[] = []
  #holdfast: Holdfast | null = null
  readonly #bodyBytesMax: number
  /** A larger body has images or files, and takes of the room for all such bodies. */
  readonly #usualBytesMax: number
  #presence: AbortController | null = null
  /** Its token was revoked: nothing more is sent. */
  #isRevoked = false
  #body: Promise<Buffer> | null = null
  #json: Promise<unknown> | null = null
  #room: BodyRoom | null = null

  constructor(
    { request, response }: { request: IncomingMessage; response: ServerResponse },
    context: ServerContext,
    { caller, params, search, route }: RoutedRequest = NOT_ROUTED,
  ) {
    this.request = request
    this.response = response
    this.context = context
    this.params = params
    this.operation = route?.operation ?? null
    this.caller = caller
    this.search = search
    const { historyBytesMax = 0, takesParts = false } = route ?? {}
    this.#usualBytesMax = context.bodyBytesMax() + historyBytesMax
    this.#bodyBytesMax = this.#usualBytesMax + (takesParts ? context.partsBytesMax() : 0)
  }

  /** On behalf of the caller: what is done through it is recorded as the caller's. */
  get holdfast(): Holdfast {
    if (this.caller === null) throw new HoldfastError('unauthorized', 'a good token is needed')
    this.#holdfast ??= this.context.holdfast.as(this.caller.by, this.caller.access)
    return this.#holdfast
  }

  /** It goes on only as long as its token is good for this too. */
  holdBy(operation: Operation): void {
    const scope = OPERATIONS[operation]
    if (scope !== null) this.heldBy.push(scope)
  }

  /** How positions and cursors are shown to the caller; null: as they are. */
  get positions(): HiddenPositions | null {
    return principalsOf(this.holdfast) === null ? null : this.context.positions
  }

  /** The session that the path names first. */
  get session(): SessionHandle {
    return this.holdfast.session(this.params[0] ?? '')
  }

  /** The path of a session on this server, for `Location`. */
  locationOf(session: string): string {
    return `${this.context.basePath}${sessionPath(session)}`
  }

  header(name: string): string | undefined {
    const value = this.request.headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

  get wantsEvents(): boolean {
    const types = [JSON_TYPE, EVENT_STREAM_TYPE] as const
    return negotiate(this.header('accept'), types) === EVENT_STREAM_TYPE
  }

  /** A body that is JSON; an empty one is an object without fields. */
  json(): Promise<unknown> {
    this.#json ??= this.#readJson()
    return this.#json
  }

  async #readJson(): Promise<unknown> {
    const text = await this.jsonText()
    try {
      return text === '' ? {} : JSON.parse(text)
    } catch {
      throw new HoldfastError('bad_request', 'the body is not JSON')
    }
  }

  /** A body that says that it is JSON; empty, if there is none. */
  async jsonText(): Promise<string> {
    if (!hasBody(this.request)) return ''
    const type = this.request.headers['content-type'] ?? ''
    if (type !== JSON_TYPE && !/^application\/json *(;|$)/i.test(type)) {
      throw new HoldfastError(
        'unsupported_media_type',
        'send the body as JSON, with the header content-type: application/json',
      )
    }
    const bytes = await this.body()
    if (!isUtf8(bytes)) throw new HoldfastError('bad_request', 'the body is not UTF-8')
    return bytes.toString()
  }

  /** The whole body as it came, however often it is asked for. */
  body(): Promise<Buffer> {
    this.#body ??= this.#readBody()
    return this.#body
  }

  async #readBody(): Promise<Buffer> {
    const { request } = this
    if (!hasBody(request)) return Buffer.alloc(0)
    const length = Number(request.headers['content-length'])
    if (length > this.#bodyBytesMax) throw bodyTooLarge(this.#bodyBytesMax)
    const refusal = this.#admitBody(length)
    if (refusal !== null) throw refusal
    return readerOf(request).read(this.#bodyBytesMax, (bytes) => this.#admitBody(bytes))
  }

  /** Takes room for a body of so many bytes, if that is more than usual. */
  #admitBody(bytes: number): HoldfastError | null {
    if (!(bytes > this.#usualBytesMax)) return null
    if (this.#room === null) {
      this.#room = this.context.largeBodies.open(this.caller?.access?.principal ?? '')
      this.response.once('close', this.#room.release)
    }
    return this.#room.grow(bytes)
  }

  /** It has been used: a long answer does not keep it in memory. */
  forgetBody(): void {
    this.#body = null
    this.#json = null
    this.#room?.release()
  }

  /** Aborted when the caller goes away before it has its whole answer. */
  get signal(): AbortSignal {
    if (this.#presence !== null) return this.#presence.signal
    const presence = new AbortController()
    this.#presence = presence
    const { response } = this
    if (response.destroyed || this.#isRevoked) presence.abort()
    response.once('close', () => {
      if (!response.writableFinished) presence.abort()
    })
    return presence.signal
  }

  reply(status: number, body: unknown, headers: Headers = []): void {
    this.send(status, JSON_TYPE, JSON.stringify(body), headers)
  }

  /** The whole answer; in one write, unless it is large. */
  send(status: number, type: string, text: string | Uint8Array, headers: Headers = []): void {
    if (this.#isRevoked) return
    const bytes = Buffer.byteLength(text)
    this.#writeHead(status, type, ['Content-Length', String(bytes), ...headers])
    if (bytes > PART_BYTES) {
      return void this.#sendInParts(typeof text === 'string' ? Buffer.from(text) : text)
    }
    this.response.end(text)
    // A reader that takes nothing of it for so long is cut off; the connection's next request, or
    // its idle time, has a time limit of its own.
    this.response.socket?.setTimeout(STALLED_MS)
  }

  async #sendInParts(body: Uint8Array): Promise<void> {
    const { response } = this
    response.once('close', this.#wait(body))
    for (let from = 0; from < body.length && !response.destroyed; from += PART_BYTES) {
      if (!response.write(body.subarray(from, from + PART_BYTES))) await this.#drained()
    }
    response.end()
  }

  /** The answer's head; its body follows by and by, through `write`. */
  begin(type: string, headers: Headers = []): void {
    if (this.#isRevoked) throw revokedError()
    this.#writeHead(200, type, headers)
  }

  /** The head of an answer that another node gave; its body follows, through `write`. */
  beginPassed(status: number, headers: Headers): void {
    if (this.#isRevoked) throw revokedError()
    const end = this.#countAnswer(status) ? ['Connection', 'close'] : []
    this.response.writeHead(status, [...headers, ...end])
  }

  /** Resolves when the reader has taken so much that more may be written, or has gone. */
  write(text: string | Uint8Array): Promise<void> | void {
    const { response } = this
    const data = typeof text === 'string' ? Buffer.from(text) : text
    const isOver = response.destroyed || response.writableEnded
    if (isOver || response.write(data)) return
    const release = this.#wait(data)
    return this.#drained().then(release)
  }

  /** Ends an answer that was begun, before what it is made from has ended. */
  end(text: string): void {
    this.response.end(text)
    this.#presence?.abort()
  }

  /** Counts what waits for the reader, until the returned function is called. */
  #wait(data: Uint8Array): () => void {
    const message = 'the client does not read its answer, and too much waits for all together'
    return this.context.unread.add(data, () => this.#cutOff(message))
  }

  #drained(): Promise<void> {
    const { response } = this
    return new Promise((resolve) => {
      const cut = (): void => this.#cutOff('the client does not read its answer')
      const stalled = setTimeout(cut, STALLED_MS)
      const ready = (): void => {
        clearTimeout(stalled)
        response.off('drain', ready).off('close', ready)
        resolve()
      }
      response.on('drain', ready).on('close', ready)
    })
  }

  #cutOff(message: string): void {
    this.#reportRefusal(new HoldfastError('too_slow', message))
    this.response.destroy()
  }

  /** Refuses; an answer that has begun is cut off, so that the client sees that it is not whole. */
  refuse(error: HoldfastError, headers: Headers = []): void {
    const { response } = this
    this.#reportRefusal(error)
    if (response.destroyed) return
    if (response.headersSent) return void response.destroy()
    const { status, type, body, headers: own } = this.context.refusalOf(error, this.request)
    const text = JSON.stringify(body)
    if (error.code !== 'body_too_large') return this.send(status, type, text, [...own, ...headers])
    const length = String(Buffer.byteLength(text))
    this.#writeHead(status, type, ['Content-Length', length, 'Connection', 'close'])
    response.write(text)
    this.#discardBody(() => response.end())
  }

  #discardBody(done: () => void): void {
    const { request } = this
    const timer = setTimeout(finish, DISCARD_MS)
    function finish(): void {
      clearTimeout(timer)
      request.off('end', finish).off('close', finish)
      done()
    }
    if (request.complete || request.destroyed) return finish()
    request.on('end', finish).on('close', finish).resume()
  }

  #reportRefusal(error: HoldfastError): void {
    // Its client is gone, or the parser rejected the rest of it and that was reported.
    if (error.code === 'bad_request' && this.request.destroyed) return
    const { request, context } = this
    const { principal } = this.caller?.access ?? {}
    const client = { address: context.addressOf(request), headers: request.headers, principal }
    reportRefusal(context.holdfast.authority.diagnose, error, { door: 'http', ...client })
  }

  /**
   * Its token is no longer good: it is refused, or cut off if its answer has begun. What it asked
   * for is treated as if its caller had gone (I10).
   */
  revoke(): void {
    this.refuse(revokedError(), ['WWW-Authenticate', 'Bearer', 'Connection', 'close'])
    this.#isRevoked = true
    this.#presence?.abort()
  }

  #writeHead(status: number, type: string, headers: Headers): void {
    const policy = headers.includes(POLICY) ? [] : STRICTEST
    const all = ['Content-Type', type, ...SAFETY, ...policy, ...headers]
    const isLast = this.#countAnswer(status)
    if (isLast && !headers.includes('Connection')) all.push('Connection', 'close')
    this.response.writeHead(status, all)
  }

  /** True if the connection is to be closed after this answer. */
  #countAnswer(status: number): boolean {
    const { answered, isDraining } = this.context
    answered.set(status, (answered.get(status) ?? 0) + 1)
    return isDraining()
  }
}

/** The type that `Accept` prefers; the first of them if it has no preference. */
export function negotiate<Type extends string>(
  accept: string | undefined,
  types: readonly [Type, ...Type[]],
): Type {
  if (accept === undefined || accept === '*/*') return types[0]
  // The most wanted first; among equals the one named first.
  const ranges = accept
    .split(',')
    .map(mediaRangeOf)
    .filter(({ weight }) => weight > 0)
    .toSorted((one, other) => other.weight - one.weight)
  for (const { range } of ranges) {
    const type = types.find(
      (candidate) => range === candidate || range === `${candidate.split('/')[0]}/*`,
    )
    if (range === '*/*' || type !== undefined) return type ?? types[0]
  }
  throw new HoldfastError('not_acceptable', `there is: ${types.join(', ')}`)
}

function mediaRangeOf(text: string): { readonly range: string; readonly weight: number } {
  const [range = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  return { range, weight: weight === undefined ? 1 : Number(weight.slice(2)) }
}

/**
 * The options of a turn. Only a turn that has to wait, or is to be cancelled when its caller goes,
 * reads the signal, which is made then. A class: V8 would keep the getter of an object literal, and
 * so the exchange, until its next full collection.
 */
export class CallerOptions<Key extends string | undefined> {
  readonly busy: TurnOptions['busy']
  readonly waitMs: TurnOptions['waitMs']
  readonly idempotencyKey: Key
  readonly onDisconnect: TurnOptions['onDisconnect']
  readonly settings: TurnOptions['settings']
  readonly onNobody: TurnOptions['onNobody']
  readonly #exchange: Exchange

  constructor(exchange: Exchange, options: TurnOptions & { readonly idempotencyKey: Key }) {
    this.#exchange = exchange
    this.busy = options.busy
    this.waitMs = options.waitMs
    this.idempotencyKey = options.idempotencyKey
    this.onDisconnect = options.onDisconnect
    this.settings = options.settings
    this.onNobody = options.onNobody
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }
}
