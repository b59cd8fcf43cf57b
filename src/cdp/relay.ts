/**
 * A port on this machine that looks like Chrome's, and leads to a browser behind Holdfast over
 * connections that survive a bad network. For clients that take nothing but a URL, in any language.
 */
import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocketServer, type RawData, type WebSocket } from 'ws'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import { HeldConnection, type HeldState } from './connection.ts'

export type RelayOptions = {
  /** `http://HOST/cdp/NAME` */
  readonly remote: string
  readonly port: number
  readonly token?: string
  /** All clients of the relay share the session of this key; without one it is a fresh one. */
  readonly key?: string
  /** As that of a connection; each has a number of its own. */
  readonly onState?: (state: HeldState, reason: string | null, connection: number) => void
}

export type Relay = { readonly port: number; readonly close: () => Promise<void> }

/** Pages in a browser may not use it, nor names that lead here from elsewhere. */
const OWN_HOST = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i

const MESSAGE_BYTES_MAX = 104_857_600
const FETCH_MS = 30_000
/** How long a session without a key is kept after its last client: no other client can find it. */
const UNUSED_MS = 600_000
/** How long a relay that goes tries to end that session; then the time above has to do. */
const GOODBYE_MS = 3_000

/** Listens on loopback only. */
export function startRelay(options: RelayOptions): Promise<Relay> {
  return new RelayServer(options).listen(options.port)
}

class RelayServer {
  readonly #options: RelayOptions
  readonly #key: string
  /** Undefined: as long as the server says. */
  readonly #ttlMs: number | undefined
  readonly #connections = new Set<HeldConnection>()
  #dialled = 0
  /** There may be a session, and no other client can find it. */
  #hasOwnSession = false
  readonly #sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MESSAGE_BYTES_MAX,
    ...SOCKET_OPTIONS,
  })

  constructor(options: RelayOptions) {
    this.#options = options
    this.#key = options.key ?? `relay-${randomBytes(12).toString('hex')}`
    this.#ttlMs = options.key === undefined ? UNUSED_MS : undefined
  }

  async listen(port: number): Promise<Relay> {
    const server = createServer((request, response) => void this.#serve(request, response))
    server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
      // The client is gone.
      stream.on('error', () => stream.destroy())
      if (!isOwn(request)) return stream.end('HTTP/1.1 403 Forbidden\r\n\r\n')
      void this.#connect(request, stream, head)
    })
    await new Promise<void>((resolve, reject) => {
      // Later ones too: a connection that cannot be taken, for example without descriptors.
      server.on('error', reject)
      server.listen({ port, host: '127.0.0.1' }, resolve)
    })
    return {
      port: (server.address() as AddressInfo).port,
      close: async () => {
        if (this.#hasOwnSession) await this.#endSession()
        for (const connection of this.#connections) connection.close()
        const closed = new Promise((resolve) => server.close(resolve))
        server.closeAllConnections()
        await closed
      },
    }
  }

  /** No other client can find the session: it ends with the relay. */
  async #endSession(): Promise<void> {
    const ended = this.#dial().then(async (connection) => {
      const closed = new Promise<void>((resolve) => {
        connection.onClosed = () => resolve()
      })
      connection.send(JSON.stringify({ id: 1, method: 'Browser.close' }))
      await closed
    })
    const late = sleep(GOODBYE_MS, undefined, { ref: false })
    // What could not be ended ends by itself: the remote notices that the client is gone.
    await Promise.race([ended.catch(() => undefined), late])
  }

  /** `/json/…` of the remote, with addresses that lead here. */
  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '/', method = 'GET', headers } = request
    const { token } = this.#options
    if (!isOwn(request)) return void response.writeHead(403).end()
    try {
      const answer = await fetch(this.#remoteUrl(url), {
        method,
        headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
        signal: AbortSignal.timeout(FETCH_MS),
      })
      const local = `"ws://${headers.host}/devtools/$1"`
      const text = await answer.text()
      const here = text.replaceAll(/"wss?:\/\/[^"]*\/devtools\/([^"?]*)[^"]*"/g, local)
      const type = answer.headers.get('content-type') ?? 'application/json'
      response.writeHead(answer.status, { 'content-type': type, 'cache-control': 'no-store' })
      response.end(here)
    } catch {
      // The reason may name the remote, which is no business of a local client.
      response.writeHead(502).end('the browser cannot be reached')
    }
  }

  /** What the remote has at this path and query, in the relay's session. */
  #remoteUrl(local: string): string {
    this.#hasOwnSession = this.#ttlMs !== undefined
    const remote = new URL(this.#options.remote)
    remote.protocol = remote.protocol.replace('ws', 'http')
    remote.searchParams.set('key', this.#key)
    if (this.#ttlMs !== undefined) remote.searchParams.set('ttlMs', String(this.#ttlMs))
    const cut = local.includes('?') ? local.indexOf('?') : local.length
    const query = local.slice(cut + 1)
    const base = `${remote.protocol}//${remote.host}${remote.pathname.replace(/\/+$/, '')}`
    return `${base}${local.slice(0, cut)}${remote.search}${query === '' ? '' : `&${query}`}`
  }

  async #connect(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    const page = /^\/devtools\/(page\/[^/?]+)/.exec(request.url ?? '')?.[1]
    try {
      const connection = await this.#dial(page)
      if (stream.destroyed) return connection.close()
      this.#sockets.handleUpgrade(request, stream, head, (socket) => this.#join(socket, connection))
    } catch {
      // `onState` got the reason.
      stream.end('HTTP/1.1 502 Bad Gateway\r\n\r\n')
    }
  }

  #dial(page?: string): Promise<HeldConnection> {
    const { remote, token, onState } = this.#options
    this.#hasOwnSession = this.#ttlMs !== undefined
    this.#dialled += 1
    const number = this.#dialled
    return HeldConnection.open(remote, {
      key: this.#key,
      ...(this.#ttlMs === undefined ? {} : { ttlMs: this.#ttlMs }),
      ...(token === undefined ? {} : { token }),
      onState: (state, reason) => onState?.(state, reason, number),
      ...(page === undefined ? {} : { below: `/${page}` }),
    })
  }

  #join(socket: WebSocket, connection: HeldConnection): void {
    this.#connections.add(connection)
    answerPings(socket)
    connection.onMessage = (message) => socket.send(message)
    connection.onClosed = ({ code }) => {
      this.#connections.delete(connection)
      // A client of the relay has closed the browser: there is nothing left to end.
      if (code === 'session_closed') this.#hasOwnSession = false
      socket.close(1011, code)
    }
    socket.on('message', (data: RawData, isBinary: boolean) => {
      if (isBinary) return socket.close(1003)
      connection.send((data as Buffer).toString())
    })
    socket.on('close', () => connection.close())
    // The close event follows.
    socket.on('error', () => undefined)
  }
}

function isOwn({ headers }: IncomingMessage): boolean {
  return headers.origin === undefined && OWN_HOST.test(headers.host ?? '')
}
