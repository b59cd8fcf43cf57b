/**
 * What an editor starts: lines of JSON-RPC on stdio, over a connection to `/acp` that may be lost.
 *
 * 1. A request of the editor stays here until it is answered. After a loss it is sent again. The
 *    server recognises a prompt by its name, and a new session by its key: nothing is done twice.
 * 2. Each session is resumed after the last update that went to the editor.
 * 3. A request of the server has the same id whenever it is sent. The editor sees it once, and an
 *    answer that was lost on its way is given again.
 * 4. When the editor has closed its end, what it has asked is answered, as far as this connection
 *    and the server can without it.
 */
import { randomBytes } from 'node:crypto'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket, type RawData } from 'ws'
import { asHoldfastError, HoldfastError } from '../core/index.ts'
import { MESSAGE_BYTES_MAX } from '../doors/acp/connection.ts'
import { errorBody } from '../doors/acp/errors.ts'
import {
  INVALID_PARAMS,
  INVALID_REQUEST,
  PARSE_ERROR,
  rpcErrorText,
  type RpcErrorBody,
  type RpcId,
} from '../doors/json-rpc.ts'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import { linesIn } from '../platform/line-splitter.ts'
import {
  cancelText,
  isPrompt,
  messageIn,
  metaOf,
  refusalIn,
  withMeta,
  type EditorMessage,
  type Fields,
} from './acp-messages.ts'

/** A request of the editor without its answer. */
type UnansweredRequest = {
  readonly message: EditorMessage
  readonly text: string
  isCancelled: boolean
}

/** What a session is resumed with. */
type Known = { at: string; attachment: string | null; token: string | null }

export type AcpShimOptions = {
  readonly url: string
  readonly token: string | null
  /** Sessions are opened by a key that the address has. */
  readonly hasKey: boolean
  readonly input: Readable
  readonly output: Writable
  /** For people: an editor shows it in its log. */
  readonly note: (words: string) => void
}

/** The bounds of the pause between two attempts to connect. */
const PAUSE_MS = 100
const PAUSE_MS_MAX = 5_000
/** Of the server: no message and no ping for so long means that the connection is lost. */
const SILENCE_MS = 30_000
/** Answers to the server that may have to be given again: the newest. */
const ANSWERS_MAX = 256
/** Requests of the shim itself. */
const OWN = 'holdfast/'
/** Refusals of a server that stops, or of a node that is not the owner: the next one answers. */
const PASSING: ReadonlySet<unknown> = new Set([
  ...['draining', 'lease_lost', 'not_owner', 'owner_unreachable', 'stale_epoch'],
  ...['store_locked', 'store_unavailable', 'too_slow'],
])

export class AcpShim {
  readonly #options: AcpShimOptions
  readonly #client = randomBytes(12).toString('hex')
  /** The editor's own `initialize`, once it has said it. */
  #initialize: EditorMessage | null = null
  #socket: WebSocket | null = null
  /** The sessions are resumed: what the editor sends goes to the server at once. */
  #isReady = false
  /** By the ids of requests, as JSON: those of the editor, and our own. */
  readonly #open = new Map<string, UnansweredRequest>()
  readonly #own = new Map<string, (message: EditorMessage) => void>()
  readonly #sessions = new Map<string, Known>()
  /** Notifications that came while there was no connection. */
  readonly #notices: string[] = []
  /** Requests of the server that the editor has not answered, and answers of the editor. */
  readonly #asked = new Set<string>()
  readonly #answers = new Map<string, string>()
  #count = 0
  #isOver = false
  /** The editor has closed its end. */
  #isInputOver = false
  /** It does not read: the socket is paused. */
  #isFull = false
  #wake: () => void = () => undefined
  #finish: () => void = () => undefined
  #fail: (error: HoldfastError) => void = () => undefined

  constructor(options: AcpShimOptions) {
    this.#options = options
  }

  /** Resolves with the exit code, when the editor has closed its end and has its answers. */
  async run(): Promise<number> {
    const { input, output } = this.#options
    const finished = new Promise<void>((resolve, reject) => {
      this.#finish = resolve
      this.#fail = reject
      this.#stayConnected().catch(reject)
      this.#readInput(input).catch(reject)
      // The editor is gone.
      output.on('error', () => resolve())
    })
    try {
      await finished
      return 0
    } catch (thrown) {
      this.#failAll(asHoldfastError(thrown))
      return 1
    } finally {
      this.#isOver = true
      this.#wake()
      await this.#leave()
      // Its callback is called when all before it has left.
      await new Promise((resolve) => output.write('', resolve))
    }
  }

  async #readInput(input: Readable): Promise<void> {
    for await (const line of linesIn(input, 2 * MESSAGE_BYTES_MAX)) {
      if (line === null) this.#tellError(null, PROTOCOL_ERRORS.tooLong)
      else if (line.trim() !== '') this.#fromEditor(line)
    }
    this.#isInputOver = true
    this.#endIfDone()
  }

  /** The editor has closed its end: there may be nothing left to tell it, or no way to. */
  #endIfDone(): void {
    if (!this.#isInputOver) return
    if (this.#open.size === 0) return this.#finish()
    if (this.#initialize === null) this.#fail(new HoldfastError('bad_request', 'initialize first'))
    if (this.#asked.size === 0) return
    this.#fail(new HoldfastError('cancelled', 'the input has ended, and the agent asks something'))
  }

  #fromEditor(line: string): void {
    const message = messageIn(line)
    if (message === null) return this.#tellError(null, PROTOCOL_ERRORS.noMessage)
    const { id, method } = message
    if (Buffer.byteLength(line) > MESSAGE_BYTES_MAX) {
      if (method !== undefined && id !== undefined) this.#tellError(id, PROTOCOL_ERRORS.tooLarge)
      return
    }
    if (method === undefined) return this.#answer(message, line)
    if (id === undefined) return this.#notice(message, line)
    this.#request(this.#named(message))
  }

  #request(message: EditorMessage): void {
    const text = JSON.stringify(message)
    if (message.method === 'initialize') this.#initialize = message
    const request = { message, text, isCancelled: false }
    this.#open.set(JSON.stringify(message.id), request)
    // The first connection begins with the editor's own.
    if (this.#isReady) this.#sendRequest(request)
    else if (message.method === 'initialize') this.#wake()
  }

  #sendRequest(request: UnansweredRequest): void {
    this.#socket?.send(request.text)
    if (request.isCancelled) this.#socket?.send(cancelText(request.message))
  }

  /** With the names by which the server knows it again. */
  #named(message: EditorMessage): EditorMessage {
    this.#count += 1
    switch (message.method) {
      case 'initialize':
        return withMeta(message, { client: this.#client })
      case 'session/prompt':
        return withMeta(message, { prompt: `p${this.#count}` })
      case 'session/new':
        if (this.#options.hasKey || metaOf(message.params)['key'] !== undefined) return message
        return withMeta(message, { key: `editor-${this.#client.slice(0, 12)}-${this.#count}` })
      default:
        return message
    }
  }

  /** A cancel may be lost on its way: what it was about is cancelled by its id then. */
  #notice({ method, params }: EditorMessage, text: string): void {
    const cancelled = [...this.#open.values()].filter(({ message }) =>
      method === '$/cancel_request'
        ? message.id === params?.['requestId']
        : method === 'session/cancel' && isPrompt(message, params?.['sessionId']),
    )
    for (const request of cancelled) request.isCancelled = true
    if (this.#isReady) this.#socket?.send(text)
    else if (cancelled.length === 0 && this.#notices.length < ANSWERS_MAX) this.#notices.push(text)
  }

  #answer({ id }: EditorMessage, text: string): void {
    const name = String(id)
    if (!this.#asked.delete(name)) return
    this.#answers.set(name, text)
    const [oldest] = this.#answers.keys()
    if (this.#answers.size > ANSWERS_MAX && oldest !== undefined) this.#answers.delete(oldest)
    if (this.#isReady) this.#socket?.send(text)
  }

  /** Connects, and connects again whenever the connection is lost. */
  async #stayConnected(): Promise<void> {
    while (this.#initialize === null && !this.#isOver) await this.#woken()
    for (let pause = PAUSE_MS; !this.#isOver;) {
      const wasReady = await this.#connect()
      if (this.#isOver) return
      if (this.#isInputOver) {
        throw new HoldfastError('owner_unreachable', 'the connection to the server is lost')
      }
      if (wasReady) {
        this.#options.note('the connection to the server is lost; trying again')
        pause = PAUSE_MS
      }
      await Promise.race([sleep(pause * (0.5 + Math.random() / 2)), this.#over])
      pause = Math.min(2 * pause, PAUSE_MS_MAX)
    }
  }

  #woken(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve))
  }

  get #over(): Promise<void> {
    return this.#isOver ? Promise.resolve() : this.#woken()
  }

  /** One connection, to its end. True if it could be used; throws if none ever can. */
  async #connect(): Promise<boolean> {
    const { url, token } = this.#options
    const headers = token === null ? {} : { authorization: `Bearer ${token}` }
    const socket = new WebSocket(url, { ...SOCKET_OPTIONS, headers, handshakeTimeout: 10_000 })
    answerPings(socket)
    this.#socket = socket
    const ended = this.#ended(socket)
    socket.on('message', (data: RawData) => this.#fromServer((data as Buffer).toString(), socket))
    // What went wrong is tried again on the next connection.
    socket.once('open', () => void this.#enter(socket).catch(() => socket.terminate()))
    try {
      await ended
    } finally {
      for (const settle of this.#own.values()) settle(LOST)
      this.#own.clear()
    }
    const wasReady = this.#isReady
    this.#isReady = false
    return wasReady
  }

  /** Resolves when it is closed; rejects if the server does not want this client. */
  #ended(socket: WebSocket): Promise<void> {
    return new Promise((resolve, reject) => {
      // One that is paused is not heard.
      const silent = setTimeout(() => (this.#isFull ? heard() : socket.terminate()), SILENCE_MS)
      const heard = (): void => void silent.refresh()
      socket.on('message', heard)
      socket.on('ping', heard)
      socket.on('unexpected-response', (_, response) => {
        const { statusCode = 0 } = response
        const isFinal = statusCode < 500 && statusCode !== 429
        const refused = isFinal ? refusalIn(response).then(reject) : Promise.resolve()
        void refused.finally(() => socket.terminate())
      })
      // The close event follows.
      socket.on('error', () => undefined)
      socket.once('close', (code) => {
        clearTimeout(silent)
        if (code === SUPERSEDED)
          reject(new HoldfastError('superseded', 'continued in another place'))
        else resolve()
      })
    })
  }

  /** Says who it is, resumes the sessions, and sends again what has no answer. */
  async #enter(socket: WebSocket): Promise<void> {
    const initialize = this.#initialize
    if (initialize === null) return
    // The editor's own is sent below, if it has no answer yet.
    await this.#ask(socket, 'initialize', initialize.params ?? {})
    for (const [sessionId, known] of this.#sessions) await this.#resume(socket, sessionId, known)
    if (this.#socket !== socket || socket.readyState !== WebSocket.OPEN) return
    this.#isReady = true
    for (const request of this.#open.values()) this.#sendRequest(request)
    for (const text of this.#notices.splice(0)) socket.send(text)
  }

  async #resume(socket: WebSocket, sessionId: string, known: Known): Promise<void> {
    const { at, attachment, token } = known
    const place = attachment === null || token === null ? {} : { attachment, token }
    const params = { sessionId, cwd: '/', mcpServers: [], _meta: { holdfast: { at, ...place } } }
    const { error } = await this.#ask(socket, 'session/resume', params)
    if (error === undefined) return
    if (PASSING.has(error.data?.['code'])) throw new Error(error.message)
    // It is closed: what the editor asks of it is refused with the reason.
    this.#sessions.delete(sessionId)
    this.#options.note(`a session could not be resumed: ${error.message}`)
  }

  #ask(socket: WebSocket, method: string, params: Fields): Promise<EditorMessage> {
    this.#count += 1
    const id = `${OWN}${this.#count}`
    socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
    return new Promise((resolve, reject) =>
      this.#own.set(id, (message) => {
        if (message === LOST) return reject(new Error('the connection was lost'))
        // At once: the updates behind it may have come together with it.
        this.#learn({ method, params }, message)
        resolve(message)
      }),
    )
  }

  #fromServer(text: string, socket: WebSocket): void {
    const message = JSON.parse(text) as EditorMessage
    const { id, method } = message
    if (method === undefined) return this.#settled(message, text, socket)
    if (method === 'session/update') this.#position(message.params)
    else if (method === '$/cancel_request') {
      const asked = String(message.params?.['requestId'])
      this.#answers.delete(asked)
      if (!this.#asked.delete(asked)) return
    } else if (id !== undefined && this.#isKnown(String(id), socket)) return
    this.#write(text)
    if (method !== 'session/update') this.#endIfDone()
  }

  #position(params: Fields | undefined): void {
    const known = this.#sessions.get(String(params?.['sessionId']))
    const { at } = metaOf(params)
    if (known !== undefined && typeof at === 'string') known.at = at
  }

  /** Whether the editor has been asked this before; its answer, if it gave one, is given again. */
  #isKnown(id: string, socket: WebSocket): boolean {
    const answer = this.#answers.get(id)
    if (answer !== undefined) socket.send(answer)
    else if (!this.#asked.has(id)) {
      this.#asked.add(id)
      return false
    }
    return true
  }

  /** A request has its answer. */
  #settled(message: EditorMessage, text: string, socket: WebSocket): void {
    const own = this.#own.get(String(message.id))
    if (own !== undefined) {
      this.#own.delete(String(message.id))
      return own(message)
    }
    const id = JSON.stringify(message.id)
    const request = this.#open.get(id)
    if (request === undefined) {
      // The server could not read it.
      if (message.error !== undefined && message.id === null) this.#write(text)
      return
    }
    if (PASSING.has(message.error?.data?.['code'])) return socket.terminate()
    this.#open.delete(id)
    this.#learn(request.message, message)
    this.#write(text)
    this.#endIfDone()
  }

  /** What a session is resumed with, by the answer that opened it. */
  #learn({ method = '', params }: EditorMessage, { result, error }: EditorMessage): void {
    if (error !== undefined) return
    const session = result?.['sessionId'] ?? params?.['sessionId']
    if (typeof session !== 'string') return
    if (/^session\/(new|load|resume)$/.test(method)) this.#know(session, result)
    else if (/^session\/(close|delete)$/.test(method)) this.#sessions.delete(session)
  }

  #know(session: string, result: Fields | undefined): void {
    const { at, attachment, token } = metaOf(result)
    const asText = (value: unknown): string | null => (typeof value === 'string' ? value : null)
    const place = { attachment: asText(attachment), token: asText(token) }
    this.#sessions.set(session, { at: String(at), ...place })
  }

  /** An editor that does not read keeps the server waiting. */
  #write(text: string): void {
    const { output } = this.#options
    if (output.write(`${text}\n`)) return
    this.#socket?.pause()
    if (this.#isFull) return
    this.#isFull = true
    output.once('drain', () => {
      this.#isFull = false
      this.#socket?.resume()
    })
  }

  #tellError(id: RpcId, error: RpcErrorBody): void {
    this.#write(rpcErrorText(id, error))
  }

  #failAll(error: HoldfastError): void {
    this.#options.note(error.message)
    for (const { message } of this.#open.values()) {
      this.#tellError(message.id ?? null, errorBody(error))
    }
  }

  /** In good order, so that the server does not wait for it to come back. */
  async #leave(): Promise<void> {
    const socket = this.#socket
    if (socket === null || socket.readyState === WebSocket.CLOSED) return
    const closed = new Promise((resolve) => socket.once('close', resolve))
    if (socket.readyState === WebSocket.OPEN) {
      // It may be paused, and would not hear of the other end.
      socket.resume()
      socket.close(1000)
    } else socket.terminate()
    await closed
  }
}

const LOST: EditorMessage = {}
const SUPERSEDED = 4408
/** What an editor has sent that is not passed on. */
const PROTOCOL_ERRORS = {
  noMessage: { code: PARSE_ERROR, message: 'this is no JSON-RPC message' },
  tooLong: { code: INVALID_REQUEST, message: 'the message is too large' },
  tooLarge: {
    code: INVALID_PARAMS,
    message: `a message may have at most ${MESSAGE_BYTES_MAX} bytes`,
  },
} as const
