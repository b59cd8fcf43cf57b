/**
 * The CDP door in the server: requests and sockets under `/cdp/NAME`, and on a port of its own if
 * one browser has it. Clients of this protocol often take nothing but an address: for them a ticket
 * stands in its query. The server shows it only to the client that sent it.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { asHoldfastError, HoldfastError, invalid, type Diagnose } from '../core/index.ts'
import { BROWSER_LIMITS } from '../browsers/index.ts'
import {
  assertNoRest,
  plainUrl,
  readAddress,
  TICKET_PATH,
  type Address,
  type CallerAddress,
  type OwnPort,
} from '../doors/cdp/address.ts'
import { SHARED_KEY, type CdpDoor } from '../doors/cdp/door.ts'
import { heldService, type HeldServiceOptions } from '../doors/cdp/held.ts'
import { serveJson, socketUrl } from '../doors/cdp/http.ts'
import type { CdpClient } from '../doors/cdp/client.ts'
import { StockConnection } from '../doors/cdp/attached-client.ts'
import { Connection } from '../doors/connect/connection.ts'
import type { Hub } from '../doors/connect/hub.ts'
import { OPERATIONS, type Caller } from '../core/access.ts'
import { Exchange, type ServerContext } from '../doors/exchange.ts'
import { reportRefusal } from '../doors/refusals.ts'
import { bearerToken, originRefused, type AccessPolicy } from './access.ts'
import { isUndone, type Upgrade } from './forwarding/request-forwarder.ts'
import { drainingError, type Forwarder } from './forwarding/forwarder.ts'
import { newHttpServer, refuseSocket, type Connections } from './http-server.ts'
import { TICKET_LIMITS, type Ticket, type Tickets } from './tickets.ts'
import { socketOpener, type SocketListener, type WebSocketEnd } from './upgrade.ts'
import { WatchedSockets } from './watched-sockets.ts'

export type CdpEntranceOptions = {
  readonly door: CdpDoor
  readonly hub: Hub
  readonly access: AccessPolicy
  readonly connections: Connections
  readonly context: ServerContext
  readonly tickets: Tickets
  /** Null: there are no other nodes. */
  readonly forwarder: Forwarder | null
  /** The server takes nothing more itself, but passes on. */
  readonly isLeaving: () => boolean
}

/** Where a client goes, by which token, and whose it is. */
type Entry = {
  readonly address: Address & Pick<CallerAddress, 'session'>
  readonly token: string | undefined
  readonly caller: Caller
}

export class CdpEntrance {
  readonly door: CdpDoor
  readonly #options: CdpEntranceOptions
  readonly #diagnose: Diagnose
  readonly #openSocket: ReturnType<typeof socketOpener>
  readonly #ports: Server[] = []
  readonly #sockets: WatchedSockets

  constructor(options: CdpEntranceOptions) {
    const { door, access } = options
    const { diagnose } = door.holdfast.authority
    this.door = door
    this.#options = options
    this.#diagnose = diagnose
    this.#openSocket = socketOpener({ diagnose, access }, door.limits.messageBytesMax)
    this.#sockets = new WatchedSockets(door.limits, () => door.boundHeld())
  }

  /** A port on which one browser is found where Chrome would have it. Resolves with its number. */
  async listen(browser: string, host: string, port: number): Promise<number> {
    const own: OwnPort = { browser, key: SHARED_KEY }
    const server = newHttpServer({
      door: 'cdp',
      serve: (request, response) => this.serve(request, response, own),
      upgrade: (request, stream, head) => this.upgrade({ request, stream, head }, own),
      diagnose: this.#diagnose,
      connections: this.#options.connections,
      access: this.#options.access,
    })
    this.#ports.push(server)
    await once(server.listen({ host, port }), 'listening')
    return (server.address() as AddressInfo).port
  }

  serve(request: IncomingMessage, response: ServerResponse, own: OwnPort | null = null): void {
    const exchange = new Exchange({ request, response }, this.#options.context)
    const handle = forwardable(request, own, (port) => this.#answer(exchange, port))
    const answered = this.#options.forwarder?.serve(exchange, { handle }) ?? handle()
    answered.catch((thrown: unknown) => {
      const error = asHoldfastError(thrown)
      exchange.refuse(error, this.#options.forwarder?.refusalHeaders(request, error))
    })
  }

  async #answer(exchange: Exchange, own: OwnPort | null): Promise<void> {
    const { request } = exchange
    const { address, token, caller } = await this.#letIn(request, own)
    this.#options.access.holdRequest(exchange, 'browser.use', token)
    if (address.path === TICKET_PATH) return this.#sendTicket(exchange, address, token)
    this.#assertStays()
    await serveJson(this.door, exchange, { ...address, ...caller })
  }

  /** An address for one browser session, for a tool that can send no token. */
  #sendTicket(exchange: Exchange, address: Address, token: string | undefined): void {
    const { browser, ticket, expiresInMs: lifeMs = TICKET_LIMITS.defaultMs } = address
    if (exchange.request.method !== 'POST') {
      return exchange.send(405, 'text/plain', 'ask with POST', ['Allow', 'POST'])
    }
    assertNoRest(address)
    if (ticket !== undefined) throw new HoldfastError('forbidden', 'a ticket makes no other one')
    if (lifeMs < 1 || lifeMs > TICKET_LIMITS.maxMs) {
      throw invalid('expiresInMs', `must be between 1 and ${TICKET_LIMITS.maxMs}`)
    }
    this.door.browserId(browser)
    const { key = `ticket-${randomBytes(12).toString('hex')}` } = address
    this.#replyTicket(exchange, { token: token ?? null, browser, key, lifeMs }, address)
  }

  #replyTicket(exchange: Exchange, ticket: Parameters<Tickets['make']>[0], address: Address): void {
    const { text, expiresAt } = this.#options.tickets.make(ticket)
    const { key, session } = ticket
    const webSocketUrl = socketUrl(exchange, { ...address, query: `ticket=${text}` }, '')
    const url = webSocketUrl.replace(/^ws/, 'http')
    exchange.reply(201, { ticket: text, key, session, expiresAt, url, webSocketUrl })
  }

  /** The same for a browser session by its id: to take over by hand what its clients do. */
  async sendTicketFor(exchange: Exchange): Promise<void> {
    const { holdfast, session } = exchange
    await session.assertMay('browser.read')
    const { host } = await this.door.tenantOf(session)
    const { name: browser } = host.facts
    const { by, access } = callerFor(browser, holdfast)
    await holdfast.as(by, access).session(session.id).assertMay('browser.use')
    const token = bearerToken(exchange.request.headers) ?? null
    const lifeMs = TICKET_LIMITS.defaultMs
    const ticket = { token, browser, session: session.id, lifeMs }
    this.#replyTicket(exchange, ticket, readAddress(plainUrl({ browser }), null))
  }

  browsers(caller: Caller): ReturnType<CdpDoor['browsers']> {
    return this.door.browsers(caller)
  }

  countsNow(): ReturnType<CdpDoor['countsNow']> {
    return this.door.countsNow()
  }

  /** A JPEG of a page of the session that the path names. */
  async screenshot({ holdfast, session }: Exchange, page?: string): Promise<Buffer> {
    await session.assertMay('browser.read')
    const { host } = await this.door.tenantOf(session)
    callerFor(host.facts.name, holdfast)
    return this.door.screenshot(session, page)
  }

  async #letIn(request: IncomingMessage, own: OwnPort | null): Promise<Entry> {
    // The server's own port has looked at it already.
    if (own !== null) this.#options.access.check(request)
    // Also if a link leads there: a mere GET of an address here starts a browser.
    if (request.headers['sec-fetch-site'] === 'cross-site') {
      throw originRefused()
    }
    const address = readAddress(request.url ?? '', own)
    const byTicket = this.#byTicket(request, address)
    const token = byTicket === null ? bearerToken(request.headers) : (byTicket.token ?? undefined)
    await this.#options.access.prepare(token)
    const granted = this.#options.access.authorize(request, 'browser.use', token)
    if (granted === null) throw new HoldfastError('unauthorized', 'a good token is needed')
    const caller = callerFor(address.browser, granted)
    if (byTicket === null) return { address, token, caller }
    const { key, session } = byTicket
    const named = { ...address, key, ...(session !== undefined && { session }) }
    return { address: named, token, caller }
  }

  /** Null: it has none. Throws unless its ticket is good, and for this session. */
  #byTicket(request: IncomingMessage, address: Address): Ticket | null {
    if (address.ticket === undefined) return null
    const ticket = this.#options.tickets.read(address.ticket)
    if (ticket === null) {
      this.#options.access.failed(this.#options.access.addressOf(request))
      throw new HoldfastError('unauthorized', 'the ticket is not good, or no more: ask for another')
    }
    const isNamed = /(^|&)key=/.test(address.query)
    if (ticket.browser !== address.browser || (isNamed && ticket.key !== address.key)) {
      throw new HoldfastError('forbidden', 'the ticket is for another browser session')
    }
    return ticket
  }

  upgrade(upgrade: Upgrade, own: OwnPort | null = null): void {
    const { request, stream } = upgrade
    // The client has disconnected: there is no answer to send.
    stream.on('error', () => stream.destroy())
    const handle = forwardable(request, own, (port) => this.#enter(upgrade, port))
    const answered = this.#options.forwarder?.serveUpgrade(upgrade, handle) ?? handle()
    answered.catch((thrown: unknown) => {
      const error = asHoldfastError(thrown)
      const client = { address: this.#options.access.addressOf(request), headers: request.headers }
      reportRefusal(this.#diagnose, error, { door: 'cdp', ...client })
      refuseSocket(stream, error, this.#options.forwarder?.refusalHeaders(request, error))
    })
  }

  async #enter(upgrade: Upgrade, own: OwnPort | null): Promise<void> {
    const { request, stream } = upgrade
    const entry = await this.#letIn(request, own)
    try {
      await this.#enterAs(entry, upgrade, own)
    } catch (thrown) {
      // If it is forwarded, the owner ends it too, but its tokens may be a copy that is older.
      const end = (): void => void stream.destroy()
      const scopes = [OPERATIONS['browser.use']]
      const release = this.#options.access.hold(entry.token, scopes, end)
      if (stream.destroyed) release()
      else stream.once('close', release)
      throw thrown
    }
  }

  async #enterAs(
    { address, token, caller }: Entry,
    upgrade: Upgrade,
    own: OwnPort | null,
  ): Promise<void> {
    const { stream } = upgrade
    assertNoRest(address)
    this.#assertStays()
    const { target, isHeld } = this.#placeOf(address)
    if (isHeld)
      return this.#enterHeld(upgrade, { address: { ...address, ...caller }, target, token })
    const uncount = this.door.holdfast.authority.usage.ofCaller(caller.access)?.take('sockets')
    // When the socket is closed, or was never opened.
    if (uncount !== undefined) stream.once('close', uncount)
    const carrier = new StockConnection(this.door.limits)
    const client = await this.door.admit({ ...address, ...caller }, { carrier, target })
    if (own !== null && address.key === own.key && target === null) this.#tellShared(client, own)
    // A client that went away meanwhile never came.
    const leave = (): void => client.leave()
    if (stream.destroyed) return leave()
    stream.once('close', leave)
    this.#openSocket(upgrade, (end) => {
      stream.off('close', leave)
      end.heardAt = performance.now()
      const revoke = (): void => end.close(4401, 'unauthorized')
      const release = this.#options.access.hold(token, [OPERATIONS['browser.use']], revoke)
      return this.#listener(end, carrier.connect(end), release)
    })
  }

  async #enterHeld(
    upgrade: Upgrade,
    caller: Pick<HeldServiceOptions, 'address' | 'target' | 'token'>,
  ): Promise<void> {
    const { hub, door, forwarder } = this.#options
    const { authorization } = upgrade.request.headers
    if (forwarder !== null) await door.assertHere(caller.address)
    // How a client whose session turns out to be another node's gets there.
    const forwarding: NonNullable<HeldServiceOptions['forwarding']> = {
      bufferedBytesMax: door.limits.unreadBytesMax,
      path: plainUrl(caller.address),
      headers: authorization === undefined ? {} : { authorization },
      messageBytesMax: BROWSER_LIMITS.messageBytesMax,
    }
    const service = heldService({ door, ...caller, forwarding })
    this.#openSocket(upgrade, (end) => this.#listener(end, new Connection(hub, end, service)))
  }

  /** Tools that meet in one session by chance take each other's tabs: the operator is warned. */
  #tellShared({ tenant }: CdpClient, { browser, key }: OwnPort): void {
    const clients = [...tenant.clients].filter(({ target }) => target === null).length
    if (clients < 2) return
    const apart = `/cdp/${browser}, or ?key= in the address, keeps them apart`
    const message = `clients of this port share one browser session, with its tabs: ${apart}`
    this.#diagnose('browser_shared', message, { browser, key, clients })
  }

  /** A server that is about to stop begins nothing that would end with it: others can, if any. */
  #assertStays(): void {
    if (this.#options.isLeaving() || this.#options.context.isDraining()) throw drainingError()
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

  #listener(
    end: WebSocketEnd,
    connection: Pick<StockConnection, 'receive' | 'closed'>,
    release: () => void = () => undefined,
  ): SocketListener {
    this.#sockets.add(end)
    return {
      // As Chrome does.
      receive: (data, isBinary) => (isBinary ? end.close(1003) : connection.receive(data)),
      closed: (code) => {
        release()
        this.#sockets.delete(end)
        connection.closed(code)
      },
    }
  }

  async close(): Promise<void> {
    this.#sockets.close()
    await this.door.close()
    for (const server of this.#ports) {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    }
  }
}

/**
 * A browser that the caller may not use does not exist for it. What limits it to some agents says
 * nothing about browsers.
 */
function callerFor(browser: string, { by, access }: Caller): Caller {
  if (access === null) return { by, access }
  const { agents: _agents, ...rest } = access
  if (rest.browsers?.includes(browser) !== false) return { by, access: rest }
  throw new HoldfastError('browser_unknown', 'there is no browser of this name')
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
