/** The server's end of a WebSocket, for the doors that have them. */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocket, WebSocketServer, type RawData, type ServerOptions } from 'ws'
import { HoldfastError, type Diagnose } from '../core/index.ts'
import type { CdpSocket } from '../doors/cdp/attached-client.ts'
import { Connection } from '../doors/connect/connection.ts'
import { connectService } from '../doors/connect/entry.ts'
import type { Hub } from '../doors/connect/hub.ts'
import { reportRefusal, type RefusedClient } from '../doors/refusals.ts'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import type { AccessPolicy } from './access.ts'
import type { Upgrade } from './forwarding/request-forwarder.ts'

/** In how many pieces a message may come: each takes some hundred bytes, however short it is. */
export const MESSAGE_CHUNKS_MAX = 4_096
const AS_TEXT = { binary: false }

/** What a door does with the messages of one socket. */
export type SocketListener = {
  receive(data: Buffer, isBinary: boolean): void
  closed(code: number): void
}

export type SocketFacts = {
  readonly diagnose: Diagnose
  readonly access: Pick<AccessPolicy, 'addressOf' | 'isForwarded'>
  /** For reports. */
  readonly door?: RefusedClient['door']
}

/** Opens the sockets of the connect door. */
export function acceptSockets(
  hub: Hub,
  access: SocketFacts['access'],
): (request: IncomingMessage, stream: Duplex, head: Buffer) => void {
  const { diagnose } = hub.holdfast.authority
  const open = socketOpener({ diagnose, access }, hub.limits.messageBytesMax, {
    maxBufferedChunks: MESSAGE_CHUNKS_MAX,
    maxFragments: MESSAGE_CHUNKS_MAX,
  })
  const connect = (end: WebSocketEnd): SocketListener => new Connection(hub, end, connectService)
  return (request, stream, head) => open({ request, stream, head }, connect)
}

/** The returned function completes an upgrade; `connect` takes the socket. */
export function socketOpener(
  { access, diagnose, door = 'cdp' }: SocketFacts,
  messageBytesMax: number,
  more: ServerOptions = {},
): (upgrade: Upgrade, connect: (end: WebSocketEnd) => SocketListener) => void {
  const options = { noServer: true, maxPayload: messageBytesMax, clientTracking: false }
  const all = { ...options, ...SOCKET_OPTIONS, ...more, WebSocket: ServerSocket }
  const sockets = new WebSocketServer(all)
  return ({ request, stream, head }, connect) => {
    const address = access.addressOf(request)
    const client = { address, isForwarded: access.isForwarded(request), door }
    sockets.handleUpgrade(request, stream, head, (socket) => {
      const end = new WebSocketEnd(socket, stream, client, diagnose)
      end.listener = connect(end)
      listen(socket, end)
    })
  }
}

/** A socket that knows its end, so that all sockets can have the same listeners. */
class ServerSocket extends WebSocket {
  end: WebSocketEnd | null = null
}

function listen(socket: ServerSocket, end: WebSocketEnd): void {
  socket.end = end
  answerPings(socket, reportFlood)
  socket.on('message', receive)
  socket.on('pong', hear)
  socket.on('close', close)
  socket.on('error', reportError)
}

function reportFlood({ end }: ServerSocket): void {
  end?.report('a socket was cut: its client sent too many control frames', 'control_frames')
}

function receive(this: WebSocket, data: RawData, isBinary: boolean): void {
  const { end } = this as ServerSocket
  end?.heard()
  end?.listener?.receive(data as Buffer, isBinary)
}

function hear(this: WebSocket): void {
  ;(this as ServerSocket).end?.heard()
}

function close(this: WebSocket, code: number): void {
  ;(this as ServerSocket).end?.listener?.closed(code)
}

/** The close event follows. A connection that was reset is nothing to report. */
function reportError(this: WebSocket, { code = '' }: NodeJS.ErrnoException): void {
  if (!code.startsWith('WS_ERR')) return
  const message = 'a socket was closed: its client broke the protocol'
  ;(this as ServerSocket).end?.report(message, 'broken_frames', { code })
}

export class WebSocketEnd implements CdpSocket {
  readonly address: string
  readonly isForwarded: boolean
  /** When something came from it, by `performance.now()`; null: the connect door's hub knows. */
  heardAt: number | null = null
  listener: SocketListener | null = null
  readonly #socket: WebSocket
  readonly #stream: Duplex & { readonly bytesRead?: number }
  readonly #door: RefusedClient['door']
  readonly #diagnose: Diagnose

  constructor(
    socket: WebSocket,
    stream: Duplex,
    client: Pick<WebSocketEnd, 'address' | 'isForwarded'> & Pick<RefusedClient, 'door'>,
    diagnose: Diagnose,
  ) {
    const { address, isForwarded, door } = client
    this.#socket = socket
    this.#stream = stream
    this.address = address
    this.isForwarded = isForwarded
    this.#door = door
    this.#diagnose = diagnose
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount
  }

  get bytesRead(): number {
    return this.#stream.bytesRead ?? 0
  }

  get isPaused(): boolean {
    return this.#socket.isPaused
  }

  setPaused(isPaused: boolean): void {
    if (isPaused) this.#socket.pause()
    else this.#socket.resume()
  }

  heard(): void {
    if (this.heardAt !== null) this.heardAt = performance.now()
  }

  /** All that is sent in one turn of the event loop leaves in one write. */
  send(data: string | Uint8Array, sent?: () => void): void {
    if (this.#stream.writableCorked === 0) {
      this.#stream.cork()
      process.nextTick(uncork, this.#stream)
    }
    this.#socket.send(data, AS_TEXT, sent)
  }

  ping(): void {
    this.#socket.ping()
  }

  close(code: number, reason = ''): void {
    this.#socket.close(code, reason)
  }

  cut(): void {
    this.#socket.terminate()
  }

  cutSlow(): void {
    const error = new HoldfastError('too_slow', 'the client does not read what it is sent')
    reportRefusal(this.#diagnose, error, { door: this.#door, address: this.address })
    this.cut()
  }

  report(message: string, reason: string, facts: Readonly<Record<string, string>> = {}): void {
    this.#diagnose('client_refused', message, { reason, address: this.address, ...facts })
  }
}

function uncork(stream: Duplex): void {
  stream.uncork()
}
