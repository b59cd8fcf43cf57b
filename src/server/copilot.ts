/**
 * The Copilot door in the server: a TCP port with the framing of the SDK, and sockets of other
 * nodes whose clients have sessions here. The port is never open without tokens: a web page can
 * make a browser connect to it, and has none.
 */
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { createServer, type AddressInfo, type Server, type Socket as TcpConnection } from 'node:net'
import type { Duplex } from 'node:stream'
import {
  asHoldfastError,
  HoldfastError,
  invalid,
  type Diagnose,
  type Unbound,
} from '../core/index.ts'
import type { Socket } from '../doors/connect/socket.ts'
import type { CopilotConnection } from '../doors/copilot/connection.ts'
import { CopilotDoor } from '../doors/copilot/door.ts'
import { FrameReader, frameOf } from '../doors/copilot/framing.ts'
import type { CopilotLimits } from '../doors/copilot/limits.ts'
import { notificationText } from '../doors/json-rpc.ts'
import { reportRefusal } from '../doors/refusals.ts'
import type { Unread } from '../doors/unread.ts'
import type { AccessPolicy } from './access.ts'
import type { Forwarder } from './forwarding/forwarder.ts'
import type { Connections } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'
import { plainAddress } from './rates.ts'
import { socketOpener } from './upgrade.ts'

export type CopilotEntranceOptions = {
  readonly holdfast: Unbound
  readonly access: AccessPolicy
  readonly connections: Connections
  readonly limits: Partial<CopilotLimits>
  readonly unread: Unread
  /** Null: there are no other nodes. */
  readonly forwarder: Forwarder | null
  readonly isDraining: () => boolean
}

/**
 * The SDK writes a header, and its message once that is acknowledged, which this system would put
 * off by 40 ms (delayed ACK): an answer takes the acknowledgement along. Methods that begin so may
 * be ignored, and are.
 */
const READING = notificationText('$/reading', {})

export class CopilotEntrance {
  readonly door: CopilotDoor
  readonly #options: CopilotEntranceOptions
  readonly #diagnose: Diagnose
  readonly #openSocket: ReturnType<typeof socketOpener>
  #server: Server | null = null
  /** What all connections have of messages that are not complete. */
  #partialBytes = 0

  constructor(options: CopilotEntranceOptions) {
    const { access, holdfast, ...shared } = options
    this.#options = options
    this.#diagnose = holdfast.authority.diagnose
    this.door = new CopilotDoor({ ...shared, holdfast, gate: access })
    const { messageBytesMax } = this.door.limits
    this.#openSocket = socketOpener({ diagnose: this.#diagnose, access }, messageBytesMax)
  }

  /** Resolves with the number of the port. */
  async listen(host: string, port: number): Promise<number> {
    if (this.#options.access.open) {
      throw invalid('copilotPort', 'needs tokens: a web page can connect to it as well')
    }
    const server = createServer({ noDelay: true, keepAlive: true }, (socket) => this.#take(socket))
    this.#server = server
    server.maxConnections = this.#options.connections.max
    await once(server.listen({ host, port, backlog: SERVER_LIMITS.backlog }), 'listening')
    server.on('error', ({ message }) => {
      this.#diagnose('accept_failed', `a connection could not be taken: ${message}`)
    })
    return (server.address() as AddressInfo).port
  }

  #take(socket: TcpConnection): void {
    // The close event follows.
    socket.on('error', () => socket.destroy())
    const { connections, access } = this.#options
    const address = plainAddress(socket.remoteAddress ?? '')
    if (!connections.takeOther(socket) || !access.connected(socket)) {
      const error = new HoldfastError('too_many', 'there are too many connections')
      reportRefusal(this.#diagnose, error, { door: 'copilot', address })
      return void socket.destroy()
    }
    const end = new TcpSocket(socket, address)
    const connection = this.door.connect(end)
    const reader = new FrameReader(() => connection.messageBytesMax)
    let kept = 0
    const keep = (bytes: number): void => {
      this.#partialBytes += bytes - kept
      kept = bytes
    }
    socket.on('data', (chunk: Buffer) => {
      this.#read(reader, connection, chunk)
      const isWaitedFor = reader.isAtMessage && connection.isAdmitted && !connection.isOver
      if (isWaitedFor && end.bufferedBytes === 0) end.send(READING)
      keep(connection.isOver ? 0 : reader.bytes)
      if (kept === 0 || this.#partialBytes <= this.door.limits.partialTotalBytesMax) return
      connection.cut(new HoldfastError('too_many', 'too many large messages are under way'))
    })
    socket.on('close', () => {
      keep(0)
      connection.closed()
    })
  }

  #read(reader: FrameReader, connection: CopilotConnection, chunk: Buffer): void {
    if (connection.isOver) return
    try {
      for (const text of reader.push(chunk)) {
        connection.receive(text)
        if (connection.isOver) return
      }
    } catch (thrown) {
      connection.cut(asHoldfastError(thrown))
    }
  }

  /** Of another node only, whose seal was checked: clients have the port. */
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    this.#openSocket({ request, stream, head }, (end) => {
      const connection = this.door.connect(end)
      return {
        receive: (data, isBinary) => {
          if (isBinary) connection.cut(new HoldfastError('bad_request', 'a message is binary'))
          else connection.receive(data.toString())
        },
        closed: () => connection.closed(),
      }
    })
  }

  async close(): Promise<void> {
    this.door.close()
    const server = this.#server
    this.#server = null
    if (server === null) return
    await new Promise((resolve) => server.close(resolve))
  }
}

/** A connection whose messages are framed. */
class TcpSocket implements Socket {
  readonly address: string
  readonly #socket: TcpConnection

  constructor(socket: TcpConnection, address: string) {
    this.#socket = socket
    this.address = address
  }

  get bufferedBytes(): number {
    return this.#socket.writableLength
  }

  get bytesRead(): number {
    return this.#socket.bytesRead
  }

  /** All that is sent in one turn of the event loop leaves in one write. */
  send(data: string | Uint8Array, sent?: () => void): void {
    const socket = this.#socket
    if (socket.writableCorked === 0) {
      socket.cork()
      process.nextTick(uncork, socket)
    }
    const [head, message] = frameOf(typeof data === 'string' ? Buffer.from(data) : data)
    socket.write(head)
    socket.write(message, sent === undefined ? undefined : () => sent())
  }

  close(): void {
    const socket = this.#socket
    socket.end()
    const cut = setTimeout(() => socket.destroy(), SERVER_LIMITS.farewellMs)
    socket.once('close', () => clearTimeout(cut))
  }

  cut(): void {
    this.#socket.destroy()
  }
}

function uncork(socket: TcpConnection): void {
  socket.uncork()
}
