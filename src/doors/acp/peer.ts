/**
 * The way to another node, for the sessions of a connection that this other node owns: messages
 * about them go there and back as they are. When it ends, so does the client's connection; the
 * client comes back.
 */
import type { ForwardedSocket, SocketForwarder } from '../connect/socket.ts'
import { requestText } from '../json-rpc.ts'

export type PeerOptions = {
  readonly address: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly bufferedBytesMax: number
  readonly messageBytesMax: number
  /** The parameters of the client's own `initialize`. */
  readonly initialize: unknown
  readonly onMessage: (text: string) => void
  readonly onSession: (session: string) => void
  readonly onClose: (code: number, reason: string) => void
}

/** No client's request has it: it is answered here. */
const GREETING = 'holdfast/initialize'

export class AcpPeer {
  readonly #socket: ForwardedSocket
  readonly #options: PeerOptions
  /** Requests whose answers name the session that they open, as JSON. */
  readonly #opening = new Set<string>()
  #isGreeted = false

  constructor(forwarder: SocketForwarder, node: string, options: PeerOptions) {
    const { initialize, ...rest } = options
    this.#options = options
    const hello = requestText(GREETING, 'initialize', initialize)
    const onMessage = (data: Buffer): void => this.#take(data.toString())
    this.#socket = forwarder.open(node, { ...rest, hello, onMessage })
  }

  #take(text: string): void {
    if (this.#isGreeted && this.#opening.size === 0) return this.#options.onMessage(text)
    const { id, method, result } = JSON.parse(text) as {
      readonly id?: unknown
      readonly method?: unknown
      readonly result?: { readonly sessionId?: unknown } | null
    }
    if (!this.#isGreeted && id === GREETING) {
      this.#isGreeted = true
      return
    }
    const isAnswer = method === undefined && this.#opening.delete(JSON.stringify(id))
    const session = result?.sessionId
    if (isAnswer && typeof session === 'string') this.#options.onSession(session)
    this.#options.onMessage(text)
  }

  /** `opening`: the id of a request that opens a session by its key. */
  send(text: string, opening?: string | number | null): void {
    if (opening !== undefined) this.#opening.add(JSON.stringify(opening))
    this.#socket.send(text)
  }

  close(code: number): void {
    this.#socket.close(code)
  }
}
