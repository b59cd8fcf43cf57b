/**
 * The way to another node, for the sessions of a connection that this other node owns: messages
 * about them go there and back as they are. When it ends, so does the client's connection; the
 * client comes back.
 */
import type { ForwardedSocket, SocketForwarder } from '../connect/socket.ts'
import { requestText, type RpcId, type RpcRequest } from '../json-rpc.ts'

export type PeerOptions = {
  readonly address: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly bufferedBytesMax: number
  readonly messageBytesMax: number
  /** The parameters of the client's own `initialize`. */
  readonly initialize: unknown
  readonly onMessage: (text: string) => void
  /** What a request that was watched has been answered with. */
  readonly onAnswer: (request: WatchedRequest, answer: PeerAnswer) => void
  readonly onClose: (code: number, reason: string) => void
}

/** A request whose answer says where its session is from then on. */
export type WatchedRequest = PassedRequest & { readonly text: string }

export type PassedRequest = RpcRequest & {
  /** A node that had not the session any more has refused it. */
  readonly isRepeated?: boolean
}

export type PeerAnswer = {
  readonly text: string
  readonly result: { readonly sessionId?: unknown } | null
  /** The code in an error's `data`; null: it is no error. */
  readonly refusal: string | null
}

type PeerMessage = {
  readonly id?: RpcId
  readonly method?: unknown
  readonly result?: PeerAnswer['result']
  readonly error?: { readonly data?: { readonly code?: string } | null }
}

/** How a node begins what is neither a request nor an answer. */
const NOTIFICATION = '{"jsonrpc":"2.0","method"'

/** No client's request has it: it is answered here. */
const GREETING = 'holdfast/initialize'

export class AcpPeer {
  readonly #socket: ForwardedSocket
  readonly #options: PeerOptions
  /** By their ids, as JSON. */
  readonly #watched = new Map<string, WatchedRequest>()
  #isGreeted = false

  constructor(forwarder: SocketForwarder, node: string, options: PeerOptions) {
    const { initialize, ...rest } = options
    this.#options = options
    const hello = requestText(GREETING, 'initialize', initialize)
    const onMessage = (data: Buffer): void => this.#take(data.toString())
    this.#socket = forwarder.open(node, { ...rest, hello, onMessage })
  }

  #take(text: string): void {
    const isPlain = this.#isGreeted && this.#watched.size === 0
    if (isPlain || text.startsWith(NOTIFICATION)) return this.#options.onMessage(text)
    const { id = null, method, result = null, error } = JSON.parse(text) as PeerMessage
    if (!this.#isGreeted && id === GREETING) {
      this.#isGreeted = true
      return
    }
    const name = JSON.stringify(id)
    const watched = method === undefined ? this.#watched.get(name) : undefined
    if (watched === undefined) return this.#options.onMessage(text)
    this.#watched.delete(name)
    const refusal = error === undefined ? null : (error.data?.code ?? '')
    this.#options.onAnswer(watched, { text, result, refusal })
  }

  send(text: string): void {
    this.#socket.send(text)
  }

  /** Its answer goes to `onAnswer`. */
  watch(request: WatchedRequest): void {
    this.#watched.set(JSON.stringify(request.id), request)
    this.#socket.send(request.text)
  }

  close(code: number): void {
    this.#socket.close(code)
  }
}
