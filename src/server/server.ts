/**
 * The HTTP server: lets a request in, finds its route, and answers whatever its handler threw.
 *
 * It stops in order: first no new turn is taken while those that run may end, then every stream is
 * told, then what is left of the connections is cut. It closes what it opened; the Holdfast behind
 * it only where it is told to.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { BrowserPool, type BrowserLimits, type BrowserSpec } from '../browsers/index.ts'
import { asHoldfastError, HoldfastError, type Diagnose, type Holdfast } from '../core/index.ts'
import { BROWSER_KEYS, CdpDoor } from '../doors/cdp/door.ts'
import type { CdpLimits } from '../doors/cdp/limits.ts'
import type { CdpCounts } from '../doors/cdp/overview.ts'
import { Hub } from '../doors/connect/hub.ts'
import type { ConnectLimits } from '../doors/connect/limits.ts'
import { Exchange, type Headers, type ServerContext } from '../doors/exchange.ts'
import { NO_QUERY } from '../doors/query.ts'
import { isPublic, type Route } from '../doors/route.ts'
import { Unread } from '../doors/unread.ts'
import { ERROR_TABLE } from '../wire/error-table.ts'
import { AccessPolicy, checkAccessOptions, type AccessOptions } from './access.ts'
import { urlHost } from './addresses.ts'
import { CdpEntrance } from './cdp.ts'
import { answerPreflight, isPreflight, letRead } from './cors.ts'
import { connectionsFor, descriptorLimit } from './descriptors.ts'
import { drainingError, Forwarder, type ClusterOptions } from './forwarding/forwarder.ts'
import { Seal } from './forwarding/seal.ts'
import { isForGood, unreadiness } from './health.ts'
import { Connections, newHttpServer } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'
import type { Serve } from './pipelines.ts'
import { Router } from './router.ts'
import { refusalForm, serverRoutes } from './routes.ts'
import { Tickets } from './tickets.ts'
import { acceptSockets } from './upgrade.ts'

export type ServerOptions = AccessOptions & {
  readonly holdfast: Holdfast
  /** 0, the default: any that is free. */
  readonly port?: number
  /** 127.0.0.1 by default; without tokens only a loopback address. */
  readonly host?: string
  /** Between two signs of life on a stream that has nothing to say. */
  readonly heartbeatMs?: number
  /** Bounds of the sockets at `/v1/connect`. */
  readonly connectLimits?: Partial<ConnectLimits>
  /** Browsers for clients of the Chrome DevTools Protocol, at `/cdp/NAME`. */
  readonly browsers?: Readonly<Record<string, BrowserSpec>>
  readonly browserLimits?: Partial<BrowserLimits>
  readonly cdpLimits?: Partial<CdpLimits>
  /** On a store that many nodes share: requests go to the node that owns their session. */
  readonly cluster?: ClusterOptions
  /** The folder for recordings of their traffic, which clients may then ask for. */
  readonly recordings?: string
  /** Called once, when the store has failed for good and only a new start helps. */
  readonly onStoreFailed?: (error: HoldfastError) => void
}

export type CloseOptions = {
  /** How long running turns may go on before connections are cut; 0, the default: not at all. */
  readonly drainMs?: number
  /** For a program that is nothing but this server: drains and closes its Holdfast in step. */
  readonly closeHoldfast?: boolean
}

const NO_MATCH = { by: null, params: [], search: '' } as const

/** Listens, and resolves when requests can come. */
export async function startServer(options: ServerOptions): Promise<HoldfastServer> {
  const { host = '127.0.0.1', port = 0 } = options
  checkAccessOptions(host, options)
  const server = new HoldfastServer(options, host)
  try {
    await server.listen(port)
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

export class HoldfastServer {
  readonly #server: Server
  readonly #holdfast: Holdfast
  readonly #context: ServerContext
  readonly #router: Router
  readonly #hub: Hub
  readonly #forwarder: Forwarder | null
  readonly #access: AccessPolicy
  readonly #cdp: CdpEntrance | null
  readonly #connections: Connections
  readonly #diagnose: Diagnose
  readonly #boundHost: string
  readonly #delay = monitorEventLoopDelay({ resolution: 20 })
  readonly #onStoreFailed: (error: HoldfastError) => void
  #storeTimer: NodeJS.Timeout | undefined
  #hasFailed = false
  /** It begins no work any more. */
  #isDraining = false
  /** It takes nothing more itself, but passes on. */
  #isLeaving = false
  #closing: Promise<void> | null = null

  constructor(options: ServerOptions, boundHost: string) {
    const { holdfast, heartbeatMs = SERVER_LIMITS.heartbeatMs } = options
    const bodyBytesMax = holdfast.authority.limits.inputBytesMax + SERVER_LIMITS.bodyBytesExtra
    this.#holdfast = holdfast
    this.#boundHost = boundHost
    const { cluster } = options
    const now = (): number => holdfast.authority.clock.now()
    const seal = cluster === undefined ? null : new Seal(cluster.secret, now)
    this.#access = new AccessPolicy(boundHost, holdfast.authority.clock, options, seal)
    const isForwarded = (request: IncomingMessage) => this.#access.isForwarded(request)
    const addressOf = (request: IncomingMessage) => this.#access.addressOf(request)
    this.#forwarder = Forwarder.from({ seal, holdfast, addressOf })
    const sockets = (): number => this.#hub.count
    const forwards = this.#forwarder === null ? {} : { forwards: this.#forwarder.counts }
    const answered = new Map<number, number>()
    const browsers = (): CdpDoor | null => this.#cdp?.door ?? null
    const isDraining = (): boolean => this.#isDraining || holdfast.authority.draining
    const unread = new Unread(SERVER_LIMITS.unreadTotalBytesMax)
    const asked = { isDraining, addressOf, unread, streams: new Set<() => void>() }
    const shared = { holdfast, bodyBytesMax, heartbeatMs, answered, ...asked }
    this.#context = { ...shared, sockets, browsers, ...forwards }
    this.#diagnose = holdfast.authority.diagnose
    const connectionsMax = connectionsFor(descriptorLimit(), cluster !== undefined)
    this.#connections = new Connections(connectionsMax, this.#diagnose)
    this.#onStoreFailed = options.onStoreFailed ?? (() => undefined)
    this.#router = new Router(serverRoutes(this.#delay))
    const newcomersMax = Math.floor(connectionsMax / 4)
    this.#hub = new Hub({
      holdfast,
      gate: this.#access,
      limits: { newcomersMax, ...options.connectLimits },
      forwarder: this.#forwarder,
      unread,
    })
    this.#cdp = this.#openCdp(options, seal)
    const upgrade = acceptSockets({
      hub: this.#hub,
      elsewhere: (request, stream, head) => {
        if (this.#cdp?.isFor(request) !== true) return false
        this.#cdp.upgrade(request, { stream, head })
        return true
      },
      check: (request) => {
        this.#access.check(request)
        if (this.#isDraining) throw drainingError()
      },
      addressOf,
      isForwarded,
    })
    const serve: Serve = (request, response) => this.#serve(request, response)
    const shares = { diagnose: this.#diagnose, connections: this.#connections }
    this.#server = newHttpServer({
      door: 'http',
      serve,
      upgrade,
      access: this.#access,
      ...shares,
    })
  }

  #openCdp(options: ServerOptions, seal: Seal | null): CdpEntrance | null {
    const { holdfast, browsers = {}, browserLimits, cdpLimits: limits = {} } = options
    // Without browsers too: another node may have them.
    holdfast.authority.reservedKeys.add(BROWSER_KEYS)
    if (Object.keys(browsers).length === 0) return null
    const { clock } = holdfast.authority
    const pool = new BrowserPool({ browsers, clock, limits: browserLimits ?? {} })
    const recordings = options.recordings === undefined ? {} : { recordings: options.recordings }
    // An address that one node hands out may be used at another.
    const names =
      seal === null ? {} : { browserIdOf: (name: string) => seal.nameFor(`cdp ${name}`) }
    const door = new CdpDoor({ holdfast, pool, limits, ...recordings, ...names })
    const forwarder = this.#forwarder
    const isLeaving = (): boolean => this.#isLeaving
    const tickets = new Tickets(clock, seal?.keyFor('cdp tickets'))
    const connections = this.#connections
    const shared = { access: this.#access, context: this.#context, tickets, connections }
    const hub = this.#hub
    return new CdpEntrance({ door, hub, ...shared, forwarder, isLeaving })
  }

  /** Serves one browser on a port of its own too, just where Chrome would have it. */
  async listenCdp(browser: string, port: number): Promise<number> {
    if (this.#cdp === null) throw new Error('this server has no browsers')
    return this.#cdp.listen(browser, { host: this.#boundHost, port })
  }

  /** What the browsers hold now; null where there are none. */
  async browserCounts(): Promise<CdpCounts | null> {
    return this.#cdp === null ? null : this.#cdp.door.counts()
  }

  get holdfast(): Holdfast {
    return this.#holdfast
  }

  get port(): number {
    return (this.#server.address() as AddressInfo | null)?.port ?? 0
  }

  get url(): string {
    return `http://${urlHost(this.#boundHost)}:${this.port}`
  }

  async listen(port: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      const { backlog } = SERVER_LIMITS
      this.#server.listen({ port, host: this.#boundHost, backlog }, () => {
        this.#server.off('error', reject)
        resolve()
      })
    })
    this.#delay.enable()
    this.#storeTimer = setInterval(() => void this.#checkStore(), SERVER_LIMITS.storeCheckMs)
    this.#storeTimer.unref()
    this.#tellLimit()
    const { about, agents } = this.#context.holdfast.authority
    this.#diagnose('listening', 'listening', { url: this.url, ...about, agents: agents.join(', ') })
  }

  #tellLimit(): void {
    const { max } = this.#connections
    if (max >= SERVER_LIMITS.connectionsMax) return
    const descriptors = descriptorLimit()
    const message = `the system allows ${descriptors} open files: at most ${max} connections`
    this.#diagnose('descriptors_low', `${message} (ulimit -n)`, { descriptors, connections: max })
  }

  /**
   * Lets running turns end for `drainMs`, then closes what the server opened: its ports,
   * connections and browsers. The Holdfast behind it stays open; turns that still run go on.
   */
  close({ drainMs = 0, closeHoldfast = false }: CloseOptions = {}): Promise<void> {
    this.#closing ??= closeHoldfast ? this.#closeAll(drainMs) : this.#close(drainMs)
    return this.#closing
  }

  async #close(drainMs: number): Promise<void> {
    clearInterval(this.#storeTimer)
    this.#isDraining = true
    const hasListened = this.#server.listening
    await this.#context.holdfast.authority.settle(drainMs)
    await this.#disconnect(drainMs)
    this.#delay.disable()
    if (hasListened) this.#diagnose('stopped', 'the server has stopped')
  }

  async #closeAll(drainMs: number): Promise<void> {
    clearInterval(this.#storeTimer)
    try {
      // Still listening: who comes now is told that this server drains, and may go elsewhere.
      await this.#context.holdfast.authority.drain(drainMs)
      await this.#forwarder?.prepareToLeave()
      this.#isLeaving = true
      await this.#holdfast.close()
      await this.#forwarder?.linger(drainMs)
    } finally {
      await this.#disconnect(drainMs)
      this.#delay.disable()
    }
    this.#diagnose('stopped', 'the server has stopped')
  }

  async #disconnect(drainMs: number): Promise<void> {
    this.#hub.close()
    for (const drain of [...this.#context.streams]) drain()
    this.#forwarder?.cutSockets()
    await this.#cdp?.close()
    this.#access.close()
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeIdleConnections()
    // What others do for those who came here is still on its way.
    await this.#forwarder?.close(drainMs)
    const cut = setTimeout(() => this.#server.closeAllConnections(), SERVER_LIMITS.farewellMs)
    await closed
    clearTimeout(cut)
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const ends = { request, response }
    try {
      this.#access.check(request)
      if (this.#answerPage(request, response)) return
      if (this.#cdp?.isFor(request) === true) return this.#cdp.serve(request, response)
      const match = this.#router.match(request.method ?? '', request.url ?? '')
      const by = this.#access.authorize(request, match.route.operation)
      const form = refusalForm(request.url ?? '')
      const exchange = new Exchange(ends, this.#context, { ...match, by }, form)
      this.#access.holdRequest(exchange, match.route.operation)
      if (match.route.query !== null) (match.route.query ?? NO_QUERY).read(match.search)
      this.#answer(exchange, match.route)?.catch((thrown: unknown) =>
        this.#refuse(exchange, thrown),
      )
    } catch (thrown) {
      const form = refusalForm(request.url ?? '')
      this.#refuse(new Exchange(ends, this.#context, NO_MATCH, form), thrown)
    }
  }

  /** A handler that does not wait for anything has answered when this returns. */
  #answer(exchange: Exchange, route: Route): Promise<void> | void {
    const forwarder = this.#forwarder
    const isRefused =
      (this.#isDraining && beginsWork(route)) ||
      (this.#isLeaving && !isPublic(route) && forwarder !== null)
    if (forwarder !== null && !isPublic(route)) {
      return forwarder.serve(exchange, route, isRefused ? drainingError() : null)
    }
    if (isRefused) throw drainingError()
    return route.handle(exchange)
  }

  /** Lets a page of an allowed origin read the answer; true if its browser asked for no more. */
  #answerPage(request: IncomingMessage, response: ServerResponse): boolean {
    const { origin } = request.headers
    if (origin === undefined || !this.#access.isAllowedOrigin(origin)) return false
    letRead(response, origin)
    if (!isPreflight(request)) return false
    answerPreflight(response)
    return true
  }

  #refuse(exchange: Exchange, thrown: unknown): void {
    const error = refusalOf(exchange, asHoldfastError(thrown))
    if (isForGood(error)) this.#storeFailed(error)
    const toNode = this.#forwarder?.refusalHeaders(exchange.request, error) ?? []
    exchange.refuse(error, [...refusalHeaders(error), ...toNode])
  }

  async #checkStore(): Promise<void> {
    const error = await unreadiness(this.#context)
    if (error !== null && isForGood(error)) this.#storeFailed(error)
  }

  #storeFailed(error: HoldfastError): void {
    if (this.#hasFailed) return
    this.#hasFailed = true
    this.#diagnose('store_failed', 'the store has failed for good', { error: error.message })
    this.#onStoreFailed(error)
  }
}

/** Sessions and turns; what runs may still be watched, answered and cancelled. */
function beginsWork({ operation }: Route): boolean {
  return operation === 'session.create' || operation === 'turn.run'
}

/** A session that moved after the request had an effect: no other node may begin it anew. */
function refusalOf({ isCommitted }: Exchange, error: HoldfastError): HoldfastError {
  if (!isCommitted || error.code !== 'not_owner') return error
  const message = 'the session has moved to another node while the turn ran: ask again'
  return new HoldfastError('owner_unreachable', message)
}

function refusalHeaders({ code, details: { allowed } }: HoldfastError): Headers {
  if (Array.isArray(allowed)) return ['Allow', allowed.join(', ')]
  return ERROR_TABLE[code].status === 401 ? ['WWW-Authenticate', 'Bearer'] : []
}
