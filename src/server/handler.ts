/**
 * Requests and sockets, from the first check to the answer: it lets a request in, finds its route
 * and the owner of its session, and answers whatever the handler threw. It listens nowhere itself:
 * `server.ts` does, or the server of another program (`createHandler`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { BrowserPool, type BrowserLimits, type BrowserSpec } from '../browsers/index.ts'
import { asHoldfastError, HoldfastError, type Diagnose, type Holdfast } from '../core/index.ts'
import { BROWSER_KEYS, CdpDoor } from '../doors/cdp/door.ts'
import type { CdpLimits } from '../doors/cdp/limits.ts'
import { Hub } from '../doors/connect/hub.ts'
import type { ConnectLimits } from '../doors/connect/limits.ts'
import { Exchange, type Headers, type RefusalForm, type ServerContext } from '../doors/exchange.ts'
import { NO_QUERY } from '../doors/route.ts'
import { isPublic, type Route } from '../doors/route.ts'
import { Unread } from '../doors/unread.ts'
import { ERROR_TABLE } from '../wire/error-table.ts'
import { AccessPolicy, type AccessOptions } from './access.ts'
import { CdpEntrance } from './cdp.ts'
import { answerPreflight, isPreflight, letRead } from './cors.ts'
import { connectionsFor, descriptorLimit } from './descriptors.ts'
import { drainingError, Forwarder, type ClusterOptions } from './forwarding/forwarder.ts'
import { Seal } from './forwarding/seal.ts'
import { isForGood, unreadiness } from './health.ts'
import type { OnUpgrade } from './http-server.ts'
import { SERVER_LIMITS } from './limits.ts'
import { Router } from './router.ts'
import { refusalForm, serverRoutes } from './routes.ts'
import { Tickets } from './tickets.ts'
import { acceptSockets } from './upgrade.ts'

export type HandlerOptions = AccessOptions & {
  /** Between two signs of life on a stream that has nothing to send. */
  readonly heartbeatMs?: number
  /** Limits of the sockets at `/v1/connect`. */
  readonly connectLimits?: Partial<ConnectLimits>
  /** Browsers for clients of the Chrome DevTools Protocol, at `/cdp/NAME`. */
  readonly browsers?: Readonly<Record<string, BrowserSpec>>
  readonly browserLimits?: Partial<BrowserLimits>
  readonly cdpLimits?: Partial<CdpLimits>
  /** On a store that many nodes share: requests go to the node that owns their session. */
  readonly cluster?: ClusterOptions
  /** The folder for recordings of their traffic, which clients may then ask for. */
  readonly recordings?: string
  /** Called once, when the store has failed for good and only a restart helps. */
  readonly onStoreFailed?: (error: HoldfastError) => void
}

/** Where a handler is reached. */
export type HandlerAddress = {
  /** The host name or address that the server is bound to. */
  readonly host: string
  /** What comes before every path, as `/holdfast`; empty: nothing does. */
  readonly basePath: string
}

export type CloseOptions = {
  /** How long running turns may go on before connections are cut; 0, the default: not at all. */
  readonly drainMs?: number
  /** For a program that is nothing but this server: drains and closes its Holdfast in step. */
  readonly closeHoldfast?: boolean
}

const NO_MATCH = { by: null, params: [], search: '' } as const

export class RequestHandler {
  readonly holdfast: Holdfast
  readonly access: AccessPolicy
  readonly cdp: CdpEntrance | null
  /** How many connections the process has descriptors for. */
  readonly connectionsMax: number
  readonly upgrade: OnUpgrade
  readonly #context: ServerContext
  readonly #router: Router
  readonly #hub: Hub
  readonly #forwarder: Forwarder | null
  readonly #diagnose: Diagnose
  readonly #delay = monitorEventLoopDelay({ resolution: 20 })
  readonly #onStoreFailed: (error: HoldfastError) => void
  #storeTimer: NodeJS.Timeout | undefined
  #hasFailed = false
  /** It begins no work any more. */
  #isDraining = false
  /** It answers nothing itself any more, but forwards. */
  #isLeaving = false

  constructor(holdfast: Holdfast, options: HandlerOptions, { host, basePath }: HandlerAddress) {
    const { cluster, heartbeatMs = SERVER_LIMITS.heartbeatMs } = options
    const { clock, limits, diagnose } = holdfast.authority
    this.holdfast = holdfast
    this.#diagnose = diagnose
    const seal = cluster === undefined ? null : new Seal(cluster.secret, () => clock.now())
    this.access = new AccessPolicy(host, clock, options, seal)
    const addressOf = (request: IncomingMessage) => this.access.addressOf(request)
    this.#forwarder = Forwarder.from({ seal, holdfast, addressOf })
    const unread = new Unread(SERVER_LIMITS.unreadTotalBytesMax)
    this.#context = {
      holdfast,
      basePath,
      bodyBytesMax: limits.inputBytesMax + SERVER_LIMITS.bodyBytesExtra,
      heartbeatMs,
      answered: new Map(),
      isDraining: () => this.#isDraining || holdfast.authority.draining,
      addressOf,
      unread,
      streams: new Set(),
      sockets: () => this.#hub.count,
      browsers: () => this.cdp?.door ?? null,
      ...(this.#forwarder === null ? {} : { forwards: this.#forwarder.counts }),
    }
    this.connectionsMax = connectionsFor(descriptorLimit(), cluster !== undefined)
    this.#onStoreFailed = options.onStoreFailed ?? (() => undefined)
    this.#router = new Router(serverRoutes(this.#delay))
    this.#hub = new Hub({
      holdfast,
      gate: this.access,
      limits: { newcomersMax: Math.floor(this.connectionsMax / 4), ...options.connectLimits },
      forwarder: this.#forwarder,
      unread,
    })
    this.cdp = this.#openCdp(options, seal)
    this.upgrade = acceptSockets({
      hub: this.#hub,
      elsewhere: (request, stream, head) => {
        if (this.cdp?.isFor(request) !== true) return false
        this.cdp.upgrade(request, { stream, head })
        return true
      },
      check: (request) => {
        this.access.check(request)
        request.url = this.#withoutBase(request.url ?? '')
        if (this.#isDraining) throw drainingError()
      },
      addressOf,
      isForwarded: (request) => this.access.isForwarded(request),
    })
  }

  #openCdp(options: HandlerOptions, seal: Seal | null): CdpEntrance | null {
    const { holdfast } = this
    const { browsers = {}, browserLimits, cdpLimits: limits = {} } = options
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
    const shared = { access: this.access, context: this.#context, tickets }
    const hub = this.#hub
    return new CdpEntrance({ door, hub, ...shared, forwarder, isLeaving })
  }

  /** Begins to measure the event loop and to check the store. */
  start(): void {
    this.#delay.enable()
    this.#storeTimer = setInterval(() => void this.#checkStore(), SERVER_LIMITS.storeCheckMs)
    this.#storeTimer.unref()
  }

  /** Takes no new work, and lets running turns end. Requests are still answered meanwhile. */
  async drain({ drainMs = 0, closeHoldfast = false }: CloseOptions): Promise<void> {
    clearInterval(this.#storeTimer)
    const { authority } = this.holdfast
    if (!closeHoldfast) {
      this.#isDraining = true
      return authority.settle(drainMs)
    }
    await authority.drain(drainMs)
    await this.#forwarder?.prepareToLeave()
    this.#isLeaving = true
    await this.holdfast.close()
    await this.#forwarder?.linger(drainMs)
  }

  /** Ends every stream and socket, and closes the browsers. */
  async disconnect(): Promise<void> {
    this.#isDraining = true
    this.#hub.close()
    for (const drain of [...this.#context.streams]) drain()
    this.#forwarder?.cutSockets()
    await this.cdp?.close()
    this.access.close()
    this.#delay.disable()
  }

  /** Waits for requests that other nodes answer, but not longer than `ms`. */
  async finishForwarding(ms: number): Promise<void> {
    await this.#forwarder?.close(ms)
  }

  /** Answers a request, or refuses it. */
  serve(request: IncomingMessage, response: ServerResponse): void {
    const ends = { request, response }
    try {
      this.access.check(request)
      request.url = this.#withoutBase(request.url ?? '')
      if (this.#answerPage(request, response)) return
      if (this.cdp?.isFor(request) === true) return this.cdp.serve(request, response)
      const match = this.#router.match(request.method ?? '', request.url ?? '')
      const by = this.access.authorize(request, match.route.operation)
      const form: RefusalForm = (error) => refusalForm(request.url ?? '')(error)
      const exchange = new Exchange(ends, this.#context, { ...match, by }, form)
      this.access.holdRequest(exchange, match.route.operation)
      if (match.route.query !== null) (match.route.query ?? NO_QUERY).read(match.search)
      this.#answer(exchange, match.route)?.catch((thrown: unknown) =>
        this.#refuse(exchange, thrown),
      )
    } catch (thrown) {
      const form = refusalForm(this.#withoutBase(request.url ?? ''))
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
    if (origin === undefined || !this.access.isAllowedOrigin(origin)) return false
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

  /** The target below the base path. */
  #withoutBase(target: string): string {
    const { basePath } = this.#context
    return target.startsWith(`${basePath}/`) ? target.slice(basePath.length) : target
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
