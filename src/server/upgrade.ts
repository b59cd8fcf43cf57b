/**
 * Sockets at `/v1/connect`: let in by the same rules as requests, then handed to the connect door.
 */
import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer, type RawData, type WebSocket } from 'ws'
import { asHoldfastError, type HoldfastError } from '../core/index.ts'
import { Connection } from '../doors/connect/connection.ts'
import type { Hub } from '../doors/connect/hub.ts'
import type { Socket } from '../doors/connect/socket.ts'
import { PROBLEM_TYPE, problemOf } from '../wire/problem.ts'

export type UpgradeOptions = {
  readonly hub: Hub
  /** Throws if the request may not come in. */
  readonly check: (request: IncomingMessage) => void
  /** The client's address, also behind a proxy. */
  readonly addressOf: (request: IncomingMessage) => string
  /** Takes a socket that is for another door, after its check; false if it is for none. */
  readonly elsewhere?: (request: IncomingMessage, stream: Duplex, head: Buffer) => boolean
}

export const CONNECT_PATH = '/v1/connect'

/** Takes over the server's upgrades. */
export function acceptSockets(server: Server, options: UpgradeOptions): void {
  const { hub, check, addressOf, elsewhere } = options
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: hub.limits.messageBytesMax,
    perMessageDeflate: false,
    clientTracking: false,
  })
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    stream.on('error', () => stream.destroy())
    try {
      check(request)
    } catch (thrown) {
      return refuseUpgrade(stream, asHoldfastError(thrown))
    }
    if (elsewhere?.(request, stream, head) === true) return
    if (request.url?.split('?', 1)[0] !== CONNECT_PATH) return refusePath(stream)
    sockets.handleUpgrade(request, stream, head, (socket) =>
      connect(hub, socket, addressOf(request)),
    )
  })
}

function connect(hub: Hub, socket: WebSocket, address: string): void {
  const connection = new Connection(hub, socketOf(socket, address))
  socket.on('message', (data: RawData, isBinary: boolean) => {
    if (isBinary) return connection.receive('')
    connection.receive((data as Buffer).toString())
  })
  socket.on('close', () => connection.closed())
  // A broken frame or a reset; the close event follows.
  socket.on('error', () => undefined)
}

function socketOf(socket: WebSocket, address: string): Socket {
  return {
    address,
    get bufferedBytes() {
      return socket.bufferedAmount
    },
    send: (data, sent) => socket.send(data, { binary: false }, sent),
    close: (code, reason) => socket.close(code, reason),
    cut: () => socket.terminate(),
  }
}

function refusePath(stream: Duplex): void {
  stream.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
}

export function refuseUpgrade(stream: Duplex, error: HoldfastError): void {
  const { title, status, ...rest } = problemOf(error)
  const body = JSON.stringify({ ...rest, title, status })
  const head = [
    `HTTP/1.1 ${status} ${title}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ]
  stream.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}
