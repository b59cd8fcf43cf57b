/** Connects to a browser that Holdfast did not start, by the address of its WebSocket. */
import { once } from 'node:events'
import { WebSocket, type RawData } from 'ws'
import { HoldfastError } from '../core/index.ts'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import type { BrowserConnection, ConnectionEvents, MessageParts } from './connection.ts'
import type { BrowserLimits } from './limits.ts'

/** Resolves when the socket is open. */
export async function connectEndpoint(
  address: string,
  events: ConnectionEvents,
  limits: BrowserLimits,
): Promise<BrowserConnection> {
  const url = await socketAddress(address, limits)
  const socket = new WebSocket(url, {
    ...SOCKET_OPTIONS,
    maxPayload: limits.messageBytesMax,
    handshakeTimeout: limits.startMs,
  })
  let reason = 'the browser has closed its connection'
  answerPings(socket, () => {
    reason = 'the browser sent too many control frames'
  })
  // A message that is too large cannot be skipped here: `ws` ends the connection with it.
  socket.on('error', ({ message }) => {
    reason = `the connection to the browser is broken: ${message}`
  })
  await once(socket, 'open').catch((error: Error) => {
    throw unreachable(address, error)
  })
  socket.on('message', (data: RawData) => events.message(data as Buffer))
  socket.once('close', () => events.closed(reason))
  return {
    send: (...parts) => sendWhole(socket, parts, limits),
    close: () => {
      socket.terminate()
      return Promise.resolve()
    },
  }
}

/** As text: browsers refuse binary frames. */
function sendWhole(socket: WebSocket, parts: MessageParts, limits: BrowserLimits): void {
  if (socket.readyState !== WebSocket.OPEN) return
  if (socket.bufferedAmount > limits.unreadBytesMax) return socket.terminate()
  const [first = ''] = parts
  const bytes = (): Uint8Array[] =>
    parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part))
  socket.send(parts.length === 1 ? first : Buffer.concat(bytes()), { binary: false })
}

/** An `http:` address is asked for the socket's, as clients do. */
async function socketAddress(address: string, { startMs }: BrowserLimits): Promise<string> {
  if (/^wss?:/i.test(address)) return address
  try {
    const url = new URL('json/version', address.endsWith('/') ? address : `${address}/`)
    const response = await fetch(url, { signal: AbortSignal.timeout(startMs) })
    const { webSocketDebuggerUrl } = (await response.json()) as { webSocketDebuggerUrl?: unknown }
    if (typeof webSocketDebuggerUrl === 'string') return webSocketDebuggerUrl
  } catch (error) {
    throw unreachable(address, error as Error)
  }
  throw unreachable(address, new Error('it does not tell its webSocketDebuggerUrl'))
}

/** The address may hold a secret: only its host is shown. */
function unreachable(address: string, { message }: Error): HoldfastError {
  const { host } = new URL(address)
  return new HoldfastError('browser_gone', `the browser at ${host} cannot be reached: ${message}`)
}
