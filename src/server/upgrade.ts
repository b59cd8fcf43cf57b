/**
 * Sockets at `/v1/connect`: let in by the same rules as requests, then handed to the connect door.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer, type RawData, type WebSocket } from 'ws'
import { asHoldfastError, type Diagnose } from '../core/index.ts'
import { Connection } from '../doors/connect/connection.ts'
import { connectService } from '../doors/connect/entry.ts'
import type { Hub } from '../doors/connect/hub.ts'
import type { Socket } from '../doors/connect/socket.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import { refuseSocket, type OnUpgrade } from './http-server.ts'
import { CONNECT_PATH } from './paths.ts'

export type UpgradeOptions = {
  readonly hub: Hub
  /** Throws if the request may not come in. */
  readonly check: (request: IncomingMessage) => void
  /** The client's address, also behind a proxy. */
  readonly addressOf: (request: IncomingMessage) => string
  /** Takes a socket that is for another door, after its check; false if it is for none. */
  readonly elsewhere?: (request: IncomingMessage, stream: Duplex, head: Buffer) => boolean
  /** Whether another node has forwarded it. */
  readonly isForwarded?: (request: IncomingMessage) => boolean
}

/** In how many pieces a message may come: each takes some hundred bytes, however short it is. */
const MESSAGE_CHUNKS_MAX = 4_096
const AS_TEXT = { binary: false }

/** What a server does with its upgrades. */
export function acceptSockets(options: UpgradeOptions): OnUpgrade {
  const { hub, check, addressOf, elsewhere, isForwarded = () => false } = options
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: hub.limits.messageBytesMax,
    maxBufferedChunks: MESSAGE_CHUNKS_MAX,
    maxFragments: MESSAGE_CHUNKS_MAX,
    clientTracking: false,
    ...SOCKET_OPTIONS,
  })
  const service = connectService(hub)
  return (request, stream, head) => {
    stream.on('error', streamOnError)
    try {
      check(request)
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      const client = { address: addressOf(request), headers: request.headers }
      reportRefusal(hub.holdfast.authority.diagnose, error, { door: 'connect', ...client })
      return refuseSocket(stream, error)
    }
    if (elsewhere?.(request, stream, head) === true) return
    if (request.url?.split('?', 1)[0] !== CONNECT_PATH) return refusePath(stream)
    sockets.handleUpgrade(request, stream, head, (socket) => {
      const end = new WebSocketEnd(socket, stream, addressOf(request), isForwarded(request))
      listen(socket, new Connection(hub, end, service), hub.holdfast.authority.diagnose)
    })
  }
}

function listen(socket: WebSocket, connection: Connection, diagnose: Diagnose): void {
  const { address } = connection.socket
  answerPings(socket, () => reportFlood(diagnose, address))
  socket.on('message', (data: RawData, isBinary: boolean) => {
    if (isBinary) return connection.receive('')
    connection.receive((data as Buffer).toString())
  })
  socket.on('close', (code) => connection.closed(code))
  // The close event follows.
  socket.on('error', (error) => reportBroken(diagnose, error, address))
}

/** Tells of a client whose pings or pongs were too many. */
export function reportFlood(diagnose: Diagnose, address: string): void {
  const facts = { reason: 'control_frames', address }
  diagnose('client_refused', 'a socket was cut: its client sent too many control frames', facts)
}

/** Tells of a client that broke the protocol. A connection that was reset is nothing to tell of. */
export function reportBroken(diagnose: Diagnose, error: Error, address: string): void {
  const { code = '' } = error as NodeJS.ErrnoException
  if (!code.startsWith('WS_ERR')) return
  const facts = { reason: 'broken_frames', address, code }
  diagnose('client_refused', 'a socket was closed: its client broke the protocol', facts)
}

/** Not a closure: it would hold the request for as long as the socket lives. */
function streamOnError(this: Duplex): void {
  this.destroy()
}

/** All that is sent in one turn of the event loop leaves in one write. */
class WebSocketEnd implements Socket {
  readonly address: string
  readonly isForwarded: boolean
  readonly #socket: WebSocket
  readonly #stream: Duplex

  constructor(socket: WebSocket, stream: Duplex, address: string, isForwarded: boolean) {
    this.#socket = socket
    this.#stream = stream
    this.address = address
    this.isForwarded = isForwarded
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount
  }

  send(data: string | Uint8Array, sent?: () => void): void {
    if (this.#stream.writableCorked === 0) {
      this.#stream.cork()
      process.nextTick(uncork, this.#stream)
    }
    this.#socket.send(data, AS_TEXT, sent)
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason)
  }

  cut(): void {
    this.#socket.terminate()
  }
}

function uncork(stream: Duplex): void {
  stream.uncork()
}

function refusePath(stream: Duplex): void {
  stream.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
}
