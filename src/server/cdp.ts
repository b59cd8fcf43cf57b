/**
 * Where the CDP door hangs in the server: requests and sockets under `/cdp/NAME`, and on a port of
 * its own if one browser has it. Clients of this protocol often take nothing but an address: for
 * them a ticket stands in its query. It is never told again but to who sent it.
 */
import { randomBytes } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer, type RawData, type WebSocket } from 'ws'
import { asHoldfastError, HoldfastError, invalid, type Principal } from '../core/index.ts'
import { BROWSER_LIMITS } from '../browsers/index.ts'
import {
  isCdpPath,
  plainUrl,
  readAddress,
  TICKET_PATH,
  type Address,
  type OwnPort,
} from '../doors/cdp/address.ts'
import { SHARED_KEY, type CdpDoor } from '../doors/cdp/door.ts'
import { heldService } from '../doors/cdp/held.ts'
import { serveJson, socketUrl } from '../doors/cdp/http.ts'
import { largestBeyond } from '../doors/cdp/largest.ts'
import type { AttachedClient } from '../doors/cdp/attached-client.ts'
import {
  StockConnection,
  type CdpConnection,
  type CdpSocket,
} from '../doors/cdp/stock-connection.ts'
import { Connection, type Service } from '../doors/connect/connection.ts'
import type { Hub } from '../doors/connect/hub.ts'
import { OPERATIONS } from '../doors/scopes.ts'
import { Exchange, type ServerContext } from '../doors/exchange.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { answerPings, SOCKET_OPTIONS } from '../wire/control-frames.ts'
import { bearerToken, type AccessPolicy } from './access.ts'
import { isUndone } from './forwarding/request-forwarder.ts'
import { drainingError, type Forwarder } from './forwarding/forwarder.ts'
import type { Upgrade } from './forwarding/tunnels.ts'
import { newHttpServer, refuseSocket, type Connections } from './http-server.ts'
import { TICKET_LIMITS, type Ticket, type Tickets } from './tickets.ts'
import { reportBroken, reportFlood } from './upgrade.ts'

export type CdpEntranceOptions = {
  readonly door: CdpDoor
  readonly hub: Hub
  readonly access: AccessPolicy
  readonly context: ServerContext
  readonly tickets: Tickets
  /** Null: there are no other nodes. */
  readonly forwarder?: Forwarder | null
  /** The server takes nothing more itself, but passes on. */
  readonly isLeaving?: () => boolean
}

/** Where a browser has a port of its own. */
export type CdpPort = {
  readonly host: string
  readonly port: number
  readonly connections: Connections
}

/** A socket that may come now; `abandon` if it does not. */
type Prepared = {
  readonly connect: (socket: CdpSocket) => CdpConnection
  readonly abandon: () => void
  /** The token of a stock client, whose socket is pinged here; the hub pings the others. */
  readonly stock: { readonly token: string | undefined } | null
}

/** Where a request goes, by which token, and whose it is. */
type LetIn = {
  readonly address: Address
  readonly token: string | undefined
  readonly by: Principal
}

export class CdpEntrance {
  readonly door: CdpDoor
  readonly #tickets: Tickets
  readonly #access: AccessPolicy
  readonly #context: ServerContext
  readonly #forwarder: Forwarder | null
  readonly #isLeaving: () => boolean
  readonly #hub: Hub
  readonly #sockets: WebSocketServer
  readonly #ports: Server[] = []
  /** When each was heard last; null: the hub looks after it. */
  readonly #alive = new Map<WebSocket, number | null>()
  readonly #addresses = new WeakMap<WebSocket, string>()
  readonly #watch: NodeJS.Timeout

  constructor(options: CdpEntranceOptions) {
    const { door, access, context, tickets } = options
    const { forwarder = null, isLeaving = () => false } = options
    this.door = door
    this.#tickets = tickets
    this.#hub = options.hub
    this.#access = access
    this.#context = context
    this.#forwarder = forwarder
    this.#isLeaving = isLeaving
    this.#sockets = new WebSocketServer({
      noServer: true,
      maxPayload: door.limits.messageBytesMax,
      clientTracking: false,
      ...SOCKET_OPTIONS,
    })
    this.#watch = setInterval(() => this.#watchAll(), door.limits.pingMs / 3).unref()
  }

  isFor({ url = '' }: IncomingMessage): boolean {
    return isCdpPath(url)
  }

  /** A port on which one browser is found where Chrome would have it. Resolves with its number. */
  async listen(browser: string, { host, port, connections }: CdpPort): Promise<number> {
    const own: OwnPort = { browser, key: SHARED_KEY }
    const server = newHttpServer({
      door: 'cdp',
      serve: (request, response) => this.serve(request, response, own),
      upgrade: (request, stream, head) => this.upgrade(request, { stream, head }, own),
      diagnose: this.door.holdfast.authority.diagnose,
      connections,
      access: this.#access,
    })
    this.#ports.push(server)
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen({ host, port }, resolve)
    })
    return (server.address() as AddressInfo).port
  }

  serve(request: IncomingMessage, response: ServerResponse, own: OwnPort | null = null): void {
    const exchange = new Exchange({ request, response }, this.#context, NO_MATCH)
    const handle = forwardable(request, own, (port) => this.#answer(exchange, port))
    const answered = this.#forwarder?.serve(exchange, { handle }) ?? handle()
    answered.catch((thrown: unknown) => this.#refuse(exchange, asHoldfastError(thrown)))
  }

  async #answer(exchange: Exchange, own: OwnPort | null): Promise<void> {
    const { request } = exchange
    const { address, token, by } = this.#letIn(request, own)
    this.#access.holdRequest(exchange, 'browser.use', token)
    if (address.path === TICKET_PATH) return this.#sendTicket(exchange, address, token)
    this.#assertStays()
    await serveJson(this.door, exchange, { ...address, by })
  }

  /** An address for one browser session, for a tool that can send no token. */
  #sendTicket(exchange: Exchange, address: Address, token: string | undefined): void {
    const { browser, rest, ticket, expiresInMs: lifeMs = TICKET_LIMITS.defaultMs } = address
    if (exchange.request.method !== 'POST') {
      return exchange.send(405, 'text/plain', 'ask with POST', ['Allow', 'POST'])
    }
    if (rest !== '') throw new HoldfastError('invalid_field', 'the query has an unknown parameter')
    if (ticket !== undefined) throw new HoldfastError('forbidden', 'a ticket makes no other one')
    if (lifeMs < 1 || lifeMs > TICKET_LIMITS.maxMs) {
      throw invalid('expiresInMs', `must be between 1 and ${TICKET_LIMITS.maxMs}`)
    }
    this.door.browserId(browser)
    const { key = `ticket-${randomBytes(12).toString('hex')}` } = address
    const made = this.#tickets.make({ token: token ?? null, browser, key, lifeMs })
    const socket = socketUrl(exchange, { ...address, query: `ticket=${made.text}` }, '')
    const body = { ticket: made.text, key, expiresAt: made.expiresAt }
    exchange.reply(201, { ...body, url: socket.replace(/^ws/, 'http'), webSocketUrl: socket })
  }

  #refuse(exchange: Exchange, error: HoldfastError): void {
    exchange.refuse(error, this.#forwarder?.refusalHeaders(exchange.request, error))
  }

  #letIn(request: IncomingMessage, own: OwnPort | null): LetIn {
    // The server's own port has looked at it already.
    if (own !== null) this.#access.check(request)
    // Also when somebody follows a link there: looking at an address here starts a browser.
    if (request.headers['sec-fetch-site'] === 'cross-site') {
      throw new HoldfastError('origin_refused', 'a page of another origin may not do this')
    }
    const address = readAddress(request.url ?? '', own)
    const byTicket = this.#byTicket(request, address)
    const token = byTicket === null ? bearerToken(request.headers) : (byTicket.token ?? undefined)
    const by = this.#access.authorize(request, 'browser.use', token)
    if (by === null) throw new HoldfastError('unauthorized', 'a good token is needed')
    return { address: byTicket === null ? address : { ...address, key: byTicket.key }, token, by }
  }

  /** Null: it has none. Throws unless its ticket is good, and for this session. */
  #byTicket(request: IncomingMessage, address: Address): Ticket | null {
    if (address.ticket === undefined) return null
    const ticket = this.#tickets.read(address.ticket)
    if (ticket === null) {
      this.#access.failed(this.#access.addressOf(request))
      throw new HoldfastError('unauthorized', 'the ticket is not good, or no more: ask for another')
    }
    const isNamed = /(^|&)key=/.test(address.query)
    if (ticket.browser !== address.browser || (isNamed && ticket.key !== address.key)) {
      throw new HoldfastError('forbidden', 'the ticket is for another browser session')
    }
    return ticket
  }

  upgrade(
    request: IncomingMessage,
    { stream, head }: { readonly stream: Duplex; readonly head: Buffer },
    own: OwnPort | null = null,
  ): void {
    // The client is gone: there is nobody to answer.
    stream.on('error', () => stream.destroy())
    const upgrade = { request, stream, head }
    const handle = forwardable(request, own, (port) => this.#enter(upgrade, port))
    const answered = this.#forwarder?.serveUpgrade(upgrade, handle) ?? handle()
    answered.catch((thrown: unknown) => this.#refuseUpgrade(upgrade, asHoldfastError(thrown)))
  }

  async #enter(upgrade: Upgrade, own: OwnPort | null): Promise<void> {
    this.#accept(upgrade, await this.#prepare(upgrade.request, own))
  }

  #refuseUpgrade({ request, stream }: Upgrade, error: HoldfastError): void {
    const client = { address: this.#access.addressOf(request), headers: request.headers }
    reportRefusal(this.door.holdfast.authority.diagnose, error, { door: 'cdp', ...client })
    refuseSocket(stream, error, this.#forwarder?.refusalHeaders(request, error))
  }

  async #prepare(request: IncomingMessage, own: OwnPort | null): Promise<Prepared> {
    const { door } = this
    const { address, token, by } = this.#letIn(request, own)
    if (address.rest !== '') {
      throw new HoldfastError('invalid_field', 'the query has an unknown parameter')
    }
    this.#assertStays()
    const { target, isHeld } = this.#placeOf(address)
    if (isHeld) {
      if (this.#forwarder !== null) await door.assertHere(address)
      const forwarding = this.#forwarding(request, address)
      const caller = { address: { ...address, by }, target, token, forwarding }
      const service = heldService({ hub: this.#hub, door, ...caller })
      const connect = (socket: CdpSocket) => new Connection(this.#hub, socket, service)
      return { connect, abandon: () => undefined, stock: null }
    }
    const carrier = new StockConnection(door.limits)
    const client = await door.admit({ ...address, by }, { carrier, target })
    if (own !== null && address.key === own.key && target === null) this.#tellShared(client, own)
    const connect = (socket: CdpSocket) => carrier.connect(client, socket)
    return { connect, abandon: () => client.leave(), stock: { token } }
  }

  /** Tools that meet in one session by chance take each other's tabs: the operator is told. */
  #tellShared({ client }: AttachedClient, { browser, key }: OwnPort): void {
    const all = [...(client?.tenant.clients ?? [])]
    const clients = all.filter(({ target }) => target === null).length
    if (clients < 2) return
    const apart = `/cdp/${browser}, or ?key= in the address, keeps them apart`
    const message = `clients of this port share one browser session, with its tabs: ${apart}`
    this.door.holdfast.authority.diagnose('browser_shared', message, { browser, key, clients })
  }

  /** A server that is about to stop begins nothing that would end with it: others can, if any. */
  #assertStays(): void {
    if (this.#isLeaving() || this.#context.isDraining()) throw drainingError()
  }

  /** How a client whose session turns out to be another node's gets there. */
  #forwarding({ headers }: IncomingMessage, address: Address): NonNullable<Service['forwarding']> {
    const { authorization } = headers
    return {
      bufferedBytesMax: this.door.limits.unreadBytesMax,
      path: plainUrl(address),
      headers: authorization === undefined ? {} : { authorization },
      messageBytesMax: BROWSER_LIMITS.messageBytesMax,
    }
  }

  /** The page that a socket is for, if it is not for the browser; and whether it may come back. */
  #placeOf({ path, browser }: Address): { target: string | null; isHeld: boolean } {
    const [, door, kind, id = ''] =
      /^\/(devtools|held)(?:\/(browser|page)\/([^/]+))?$/.exec(path) ?? []
    const isHeld = door === 'held'
    const isBrowser = kind === 'browser' && id === this.door.browserId(browser)
    if (kind === 'page') return { target: id, isHeld }
    if (isBrowser || path === '' || (isHeld && kind === undefined)) return { target: null, isHeld }
    throw new HoldfastError('route_unknown', 'there is nothing at this path')
  }

  #accept({ request, stream, head }: Upgrade, { connect, abandon, stock }: Prepared): void {
    // Whoever went away meanwhile never came.
    if (stream.destroyed) return abandon()
    let isOpen = false
    stream.once('close', () => {
      if (!isOpen) abandon()
    })
    this.#sockets.handleUpgrade(request, stream, head, (socket) => {
      isOpen = true
      const { diagnose } = this.door.holdfast.authority
      const from = this.#access.addressOf(request)
      answerPings(socket, () => reportFlood(diagnose, from))
      socket.on('error', (error) => reportBroken(diagnose, error, from))
      this.#addresses.set(socket, from)
      const isForwarded = this.#access.isForwarded(request)
      const facts = { address: from, isForwarded, cutSlow: () => this.#cutSlow(socket) }
      this.#connect(socket, connect(cdpSocket(socket, stream, facts)), stock !== null)
      if (stock === null) return
      const revoke = (): void => socket.close(4401, 'unauthorized')
      socket.once('close', this.#access.hold(stock.token, [OPERATIONS['browser.use']], revoke))
    })
  }

  #connect(socket: WebSocket, connection: CdpConnection, isStock: boolean): void {
    const heard = (): void => void this.#alive.set(socket, isStock ? performance.now() : null)
    heard()
    socket.on('message', (data: RawData, isBinary: boolean) => {
      heard()
      // As Chrome does.
      if (isBinary) return socket.close(1003)
      connection.receive(data as Buffer)
    })
    socket.on('pong', heard)
    socket.on('close', (code: number) => {
      this.#alive.delete(socket)
      connection.closed(code)
    })
  }

  #watchAll(): void {
    const now = performance.now()
    const { pingMs, deadMs } = this.door.limits
    for (const [socket, heardAt] of [...this.#alive]) {
      if (heardAt === null) continue
      // It is silent because it is not listened to.
      if (socket.isPaused) this.#alive.set(socket, now)
      else if (now - heardAt > deadMs) socket.terminate()
      else if (now - heardAt > pingMs) socket.ping()
    }
    this.#boundUnread()
  }

  /** Each has a bound, but many who do not read could still fill the memory together. */
  #boundUnread(): void {
    const { unreadTotalBytesMax } = this.door.limits
    const unread = ({ bufferedAmount }: WebSocket): number => bufferedAmount
    const most = largestBeyond(this.#alive.keys(), unread, unreadTotalBytesMax)
    for (const socket of most) this.#cutSlow(socket)
    this.door.boundHeld()
  }

  #cutSlow(socket: WebSocket): void {
    const error = new HoldfastError('too_slow', 'the client does not read what it is sent')
    const client = { door: 'cdp', address: this.#addresses.get(socket) ?? '' } as const
    reportRefusal(this.door.holdfast.authority.diagnose, error, client)
    socket.terminate()
  }

  async close(): Promise<void> {
    clearInterval(this.#watch)
    await this.door.close()
    for (const server of this.#ports) {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    }
  }
}

/**
 * A refusal that another node may answer instead makes the address a plain one first: that node has
 * no port of its own for this browser, or another browser on it.
 */
function forwardable(
  request: IncomingMessage,
  own: OwnPort | null,
  handle: (own: OwnPort | null) => Promise<void>,
): () => Promise<void> {
  let port = own
  return async () => {
    try {
      await handle(port)
    } catch (thrown) {
      const { code, details } = asHoldfastError(thrown)
      if (port !== null && isUndone(code, details)) {
        request.url = plainUrl(readAddress(request.url ?? '', port))
        port = null
      }
      throw thrown
    }
  }
}

const NO_MATCH = { by: null, params: [], search: '' } as const

function cdpSocket(
  socket: WebSocket,
  stream: Duplex & { readonly bytesRead?: number },
  facts: Pick<CdpSocket, 'address' | 'isForwarded' | 'cutSlow'>,
): CdpSocket {
  return {
    ...facts,
    get bufferedBytes() {
      return socket.bufferedAmount
    },
    get bytesRead() {
      return stream.bytesRead ?? 0
    },
    get isPaused() {
      return socket.isPaused
    },
    send: (message, sent) => socket.send(message, { binary: false }, sent),
    close: (code, reason) => socket.close(code, reason),
    cut: () => socket.terminate(),
    setPaused: (isPaused) => (isPaused ? socket.pause() : socket.resume()),
  }
}
