/**
 * Requests and sockets, from the first check to the answer: it lets a request in, finds its route
 * and the owner of its session, and answers whatever the handler threw. It listens nowhere itself:
 * `server.ts` does, or the server of another program (`createHandler`).
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import {
  BrowserPool,
  type BrowserLimits,
  type BrowserSpec,
  type ResolveHost,
} from '../browsers/index.ts'
import {
  asHoldfastError,
  HoldfastError,
  type Diagnose,
  type DiagnosticCode,
  type Holdfast,
} from '../core/index.ts'
import { isCdpPath } from '../doors/cdp/address.ts'
import { BROWSER_KEYS, CdpDoor } from '../doors/cdp/door.ts'
import type { CdpLimits } from '../doors/cdp/limits.ts'
import type { CopilotLimits } from '../doors/copilot/limits.ts'
import { COPILOT_PATH } from '../doors/copilot/upstream.ts'
import { Hub } from '../doors/connect/hub.ts'
import type { ConnectLimits } from '../doors/connect/hub.ts'
import { Exchange, type ServerContext } from '../doors/exchange.ts'
import { reportRefusal, type Headers } from '../doors/refusals.ts'
import { isPublic, NO_QUERY, type Route } from '../doors/route.ts'
import { LargeBodies } from '../doors/request-body.ts'
import { Unread } from '../doors/unread.ts'
import type { WebhookOptions } from '../schema/webhooks.ts'
import { ERROR_TABLE } from '../wire/error-table.ts'
import { ACP_PATH, AcpEntrance } from './acp.ts'
import { AccessPolicy, bearerToken, type AccessOptions } from './access.ts'
import { Audit, type Configuration } from './audit.ts'
import { CdpEntrance } from './cdp.ts'
import { CopilotEntrance } from './copilot.ts'
import { AskLinks } from './ask-links.ts'
import { answerPage } from './cors.ts'
import { drainingError, Forwarder, type ClusterOptions } from './forwarding/forwarder.ts'
import { CONNECT_PATH } from './forwarding/owner-socket.ts'
import { Seal } from './forwarding/seal.ts'
import { Connections, refuseSocket, type OnUpgrade } from './http-server.ts'
import { connectionsFor, descriptorLimit, SERVER_LIMITS } from './limits.ts'
import { refusalAt, serverRoutes, unreadiness } from './routes.ts'
import { PositionCipher, storedKey } from './positions.ts'
import { Recorder } from './recorder.ts'
import { Router } from './router.ts'
import { Tickets } from './tickets.ts'
import { hasSeveralPrincipals } from './tokens.ts'
import { acceptSockets } from './upgrade.ts'
import type { WebhookLimits } from './webhooks/context.ts'
import { Webhooks } from './webhooks/webhooks.ts'

export type HandlerOptions = AccessOptions & {
  /** Between two signs of life on a stream that has nothing to send. */
  readonly heartbeatMs?: number
  /** Limits of the sockets at `/v1/connect`. */
  readonly connectLimits?: Partial<ConnectLimits>
  /** Browsers for clients of the Chrome DevTools Protocol, at `/cdp/NAME`. */
  readonly browsers?: Readonly<Record<string, BrowserSpec>>
  readonly browserLimits?: Partial<BrowserLimits>
  /**
   * How names are resolved for pages with an egress rule, and for webhooks; by default by the name
   * servers.
   */
  readonly resolveHost?: ResolveHost
  readonly cdpLimits?: Partial<CdpLimits>
  /** Programs elsewhere that are told what happens in sessions. */
  readonly webhooks?: readonly WebhookOptions[]
  readonly webhookLimits?: Partial<WebhookLimits>
  /** Limits of the connections of Copilot SDKs. */
  readonly copilotLimits?: Partial<CopilotLimits>
  /** On a store that many nodes share: requests go to the node that owns their session. */
  readonly cluster?: ClusterOptions
  /** The folder for recordings of their traffic, which clients may then ask for. */
  readonly recordings?: string
  /** The audit tells at each start which settings have changed. */
  readonly configuration?: Configuration
  /** What `/ready` reports besides: codes of diagnostics. */
  readonly warnings?: () => readonly DiagnosticCode[]
  /** Called once, when the store has failed for good and only a restart helps. */
  readonly onStoreFailed?: (error: HoldfastError) => void
}

export type CloseOptions = {
  /** How long running turns may go on before connections are cut; 0, the default: not at all. */
  readonly drainMs?: number
  /** For a program that is nothing but this server: drains and closes its Holdfast in step. */
  readonly closeHoldfast?: boolean
}

/** What can be changed while it runs. */
export type ServerReconfiguration = Required<
  Pick<HandlerOptions, 'sharedKeys' | 'browsers' | 'webhooks' | 'configuration'>
>

type RequestEnds = { readonly request: IncomingMessage; readonly response: ServerResponse }

export class RequestHandler {
  readonly holdfast: Holdfast
  readonly access: AccessPolicy
  readonly cdp: CdpEntrance | null
  readonly copilot: CopilotEntrance
  readonly #audit: Audit
  /** Of all ports: as many as the process has descriptors for. */
  readonly connections: Connections
  readonly #connect: OnUpgrade
  readonly #acp: AcpEntrance
  readonly #context: ServerContext
  readonly #router: Router
  readonly #hub: Hub
  readonly #pool: BrowserPool
  readonly #forwarder: Forwarder | null
  readonly #diagnose: Diagnose
  readonly #recorder: Recorder
  readonly #webhooks: Webhooks
  readonly #options: HandlerOptions
  #storeTimer: NodeJS.Timeout | undefined
  #hasFailed = false
  #closing: Promise<void> | null = null
  /** It begins no work any more. */
  #isDraining = false
  /** It answers nothing itself any more, but forwards. */
  #isLeaving = false

  /** `host`: the name or address that the server is bound to. */
  constructor(holdfast: Holdfast, options: HandlerOptions, host: string, basePath: string) {
    const { cluster, heartbeatMs = SERVER_LIMITS.heartbeatMs } = options
    const { clock, limits, diagnose, store, counts } = holdfast.authority
    this.holdfast = holdfast
    this.#diagnose = diagnose
    this.#options = options
    // First, since it checks its options, and nothing has to be closed yet.
    const pool = (this.#pool = browserPool(holdfast, options))
    const seal = cluster === undefined ? null : new Seal(cluster.secret, () => clock.now())
    const readKey = async () => seal?.keyFor('positions') ?? storedKey(holdfast)
    const askLinks = new AskLinks(holdfast, readKey)
    this.#webhooks = newWebhooks(holdfast, options, askLinks)
    this.access = new AccessPolicy(
      ...([host, clock, options] as const),
      seal && { seal, rates: { counts, key: seal.keyFor('failed attempts') } },
    )
    this.#audit = new Audit(holdfast.authority)
    holdfast.authority.diagnosticListeners.add(this.#audit.take)
    options.tokens?.reportTo?.(this.#audit.take)
    const addressOf = (request: IncomingMessage) => this.access.addressOf(request)
    this.#forwarder =
      seal === null || store.cluster === undefined
        ? null
        : new Forwarder(seal, store.cluster, holdfast, addressOf)
    const unread = new Unread(SERVER_LIMITS.unreadTotalBytesMax)
    this.#context = {
      holdfast,
      basePath,
      bodyBytesMax: () => limits.inputBytesMax + SERVER_LIMITS.bodyBytesExtra,
      // As base64, which pads each to four characters.
      partsBytesMax: () => Math.ceil(limits.partsBytesMax / 3) * 4 + limits.partsMax * 4,
      largeBodies: new LargeBodies(SERVER_LIMITS.largeBodiesBytesMax),
      heartbeatMs,
      answered: new Map(),
      isDraining: () => this.#isDraining || holdfast.authority.draining,
      warnings: options.warnings ?? (() => []),
      addressOf,
      refusalOf: (error, request) => refusalAt(this.#withoutBase(request), error),
      unread,
      streams: new Set(),
      sockets: () => this.#hub.count,
      positions: new PositionCipher(readKey),
      browsers: () => this.cdp,
      ...(this.#forwarder !== null && {
        forwards: this.#forwarder.counts,
        forwardTimes: this.#forwarder.requests.times,
      }),
    }
    const connectionsMax = connectionsFor(descriptorLimit(), cluster !== undefined)
    this.connections = new Connections(connectionsMax, diagnose)
    this.#recorder = new Recorder(this.#context)
    const routes = serverRoutes({
      recorder: this.#recorder,
      acp: () => this.#acp.http,
      webhooks: this.#webhooks,
      askLinks,
    })
    this.#router = new Router(routes)
    this.#hub = new Hub({
      holdfast,
      gate: this.access,
      limits: { newcomersMax: Math.floor(connectionsMax / 4), ...options.connectLimits },
      forwarder: this.#forwarder,
      unread,
    })
    this.#connect = acceptSockets(this.#hub, this.access)
    this.#acp = new AcpEntrance({ hub: this.#hub, access: this.access, context: this.#context })
    this.cdp = this.#openCdp(pool, seal)
    this.copilot = new CopilotEntrance({
      holdfast,
      access: this.access,
      connections: this.connections,
      limits: options.copilotLimits ?? {},
      unread,
      forwarder: this.#forwarder,
      isDraining: this.#context.isDraining,
    })
  }

  #openCdp(pool: BrowserPool, seal: Seal | null): CdpEntrance | null {
    const { holdfast, access } = this
    const { cdpLimits = {}, recordings } = this.#options
    const { clock, reservedKeys } = holdfast.authority
    // Without browsers too: another node may have them.
    reservedKeys.add(BROWSER_KEYS)
    if (pool.names.length === 0) return null
    const door = new CdpDoor({
      holdfast,
      pool,
      limits: cdpLimits,
      ...(recordings !== undefined && { recordings }),
      // An address that one node hands out may be used at another.
      ...(seal !== null && { browserIdOf: (name: string) => seal.nameFor(`cdp ${name}`) }),
    })
    return new CdpEntrance({
      door,
      hub: this.#hub,
      access,
      connections: this.connections,
      context: this.#context,
      tickets: new Tickets(clock, seal?.keyFor('cdp tickets')),
      forwarder: this.#forwarder,
      isLeaving: () => this.#isLeaving,
    })
  }

  /** Checks a new configuration, and throws; the returned function puts it in force. */
  prepare(options: ServerReconfiguration): () => void {
    const { sharedKeys, browsers, webhooks, configuration } = options
    const applyEgress = this.#pool.prepare(browsers)
    const applyWebhooks = this.#webhooks.prepare(webhooks)
    return () => {
      applyEgress()
      applyWebhooks()
      this.access.shareKeys(sharedKeys)
      this.#audit.configured(configuration, 'runs on')
    }
  }

  start(): void {
    const { configuration } = this.#options
    if (configuration !== undefined) this.#audit.configured(configuration, 'has started')
    this.#recorder.start()
    this.#webhooks.start()
    const check = async (): Promise<void> => {
      const error = await unreadiness(this.#context)
      if (error !== null) this.#noticeFailure(error)
    }
    this.#storeTimer = setInterval(() => void check(), SERVER_LIMITS.storeCheckMs).unref()
  }

  /**
   * Stops in order: it takes no new turns while running ones may end, then it ends every stream and
   * socket, then it cuts the remaining connections of `server`. It closes what it opened, and the
   * Holdfast behind it only with `closeHoldfast`.
   */
  close(options: CloseOptions, server: Server | null = null): Promise<void> {
    this.#closing ??= this.#close(options, server)
    return this.#closing
  }

  async #close(options: CloseOptions, server: Server | null): Promise<void> {
    const wasListening = server?.listening === true
    try {
      // Still listening: new requests are refused as draining, and may go to another node.
      await this.#drain(options)
    } finally {
      await this.#disconnect()
      const closed = new Promise<unknown>((resolve) => server?.close(resolve) ?? resolve(null))
      server?.closeIdleConnections()
      await this.#forwarder?.close(options.drainMs ?? 0)
      const cut = setTimeout(() => server?.closeAllConnections(), SERVER_LIMITS.farewellMs)
      await closed
      clearTimeout(cut)
    }
    if (wasListening) this.#diagnose('stopped', 'the server has stopped')
  }

  async #drain({ drainMs = 0, closeHoldfast = false }: CloseOptions): Promise<void> {
    clearInterval(this.#storeTimer)
    const { authority } = this.holdfast
    if (!closeHoldfast) {
      this.#isDraining = true
      await authority.settle(drainMs)
      return this.#webhooks.close()
    }
    await authority.drain(drainMs)
    await this.#webhooks.close()
    await this.#forwarder?.prepareToLeave()
    this.#isLeaving = true
    await this.#closeAudit()
    await this.holdfast.close()
    await this.#forwarder?.linger(drainMs)
  }

  async #closeAudit(): Promise<void> {
    this.holdfast.authority.diagnosticListeners.delete(this.#audit.take)
    await this.#audit.close()
  }

  async #disconnect(): Promise<void> {
    this.#isDraining = true
    this.#acp.close()
    this.#hub.close()
    for (const drain of [...this.#context.streams]) drain()
    this.#forwarder?.requests.cutTunnels()
    await this.cdp?.close()
    await this.copilot.close()
    await this.#closeAudit()
    this.access.close()
    this.#recorder.stop()
  }

  readonly upgrade: OnUpgrade = (request, stream, head) => {
    stream.on('error', destroyStream)
    const preparing = this.access.prepare(bearerToken(request.headers))
    if (preparing === null) return this.#upgrade(request, stream, head)
    const proceed = (): void => this.#upgrade(request, stream, head)
    // If the token cannot be checked now, the door refuses it.
    void preparing.then(proceed, proceed)
  }

  #upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    try {
      this.#check(request)
      if (this.#isDraining) throw drainingError()
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      const client = { address: this.access.addressOf(request), headers: request.headers }
      reportRefusal(this.#diagnose, error, { door: 'connect', ...client })
      return refuseSocket(stream, error)
    }
    const { url = '' } = request
    if (this.cdp !== null && isCdpPath(url)) return this.cdp.upgrade({ request, stream, head })
    const [path] = url.split('?', 1)
    if (path === CONNECT_PATH) return this.#connect(request, stream, head)
    if (path === ACP_PATH) return this.#acp.upgrade({ request, stream, head })
    if (url === COPILOT_PATH && this.access.isForwarded(request)) {
      return this.copilot.upgrade(request, stream, head)
    }
    stream.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
  }

  readonly serve = (request: IncomingMessage, response: ServerResponse): void => {
    const token = bearerToken(request.headers)
    const preparing = this.access.prepare(token)
    if (preparing === null) return this.#serve({ request, response }, token)
    const proceed = (problem: HoldfastError | null): void => {
      // Its client may be gone meanwhile.
      if (!response.destroyed) this.#serve({ request, response }, token, problem)
    }
    void preparing.then(
      () => proceed(null),
      (thrown: unknown) => proceed(asHoldfastError(thrown)),
    )
  }

  /** `problem`: why its token cannot be checked now. */
  #serve(ends: RequestEnds, token: string | undefined, problem: HoldfastError | null = null): void {
    const { request, response } = ends
    try {
      this.#check(request)
      const { origin } = request.headers
      const isPage = origin !== undefined && this.access.origins.has(origin)
      if (isPage && answerPage(request, response, origin)) return
      const { method = '', url = '' } = request
      if (this.cdp !== null && isCdpPath(url)) return this.cdp.serve(request, response)
      const match = this.#router.match(method, url)
      const { route, search } = match
      if (problem !== null && !isPublic(route)) throw problem
      const caller = this.access.authorize(request, route.operation, token)
      const exchange = new Exchange(ends, this.#context, { ...match, caller })
      this.access.holdRequest(exchange, route.operation, token)
      if (search !== '' && route.query !== null) (route.query ?? NO_QUERY).read(search)
      this.#answer(exchange, route)?.catch((thrown: unknown) => this.#refuse(exchange, thrown))
    } catch (thrown) {
      // Of a request that was not let in: whose it is, for the report.
      const caller = this.access.callerOf(token)
      const unrouted = { caller, params: [], search: '' }
      this.#refuse(new Exchange(ends, this.#context, unrouted), thrown)
    }
  }

  /** The first checks of a request. Makes its target a path below the base path. */
  #check(request: IncomingMessage): void {
    this.access.check(request)
    request.url = this.#withoutBase(request)
  }

  #withoutBase({ url = '' }: IncomingMessage): string {
    const { basePath } = this.#context
    return url.startsWith(`${basePath}/`) ? url.slice(basePath.length) : url
  }

  /** A handler that does not wait for anything has answered when this returns. */
  #answer(exchange: Exchange, route: Route): Promise<void> | void {
    // A public route is about this node, unless it names a session.
    const isHere = isPublic(route) && route.session === undefined
    const forwarder = isHere ? null : this.#forwarder
    // What runs may still be watched, answered and cancelled.
    const beginsWork = route.operation === 'session.create' || route.operation === 'turn.run'
    const isRefused = (this.#isDraining && beginsWork) || (this.#isLeaving && forwarder !== null)
    if (forwarder !== null) {
      return forwarder.serve(exchange, route, isRefused ? drainingError() : null)
    }
    if (isRefused) throw drainingError()
    return route.handle(exchange)
  }

  #refuse(exchange: Exchange, thrown: unknown): void {
    let error = asHoldfastError(thrown)
    // A session that moved after the request had an effect: no other node may begin it anew.
    if (exchange.isCommitted && error.code === 'not_owner') {
      const message = 'the session has moved to another node while the turn ran: ask again'
      error = new HoldfastError('owner_unreachable', message)
    }
    this.#noticeFailure(error)
    const toNode = this.#forwarder?.refusalHeaders(exchange.request, error) ?? []
    exchange.refuse(error, [...refusalHeaders(error), ...toNode])
  }

  /** Of the store, if nothing but a new start helps. */
  #noticeFailure(error: HoldfastError): void {
    const isForGood = ['store_failed', 'store_corrupt', 'store_newer'].includes(error.code)
    if (!isForGood || this.#hasFailed) return
    this.#hasFailed = true
    this.#diagnose('store_failed', 'the store has failed for good', { error: error.message })
    this.#options.onStoreFailed?.(error)
  }
}

function browserPool(holdfast: Holdfast, options: HandlerOptions): BrowserPool {
  const { browsers = {}, browserLimits = {}, tokens, resolveHost } = options
  const { clock, diagnose } = holdfast.authority
  return new BrowserPool({
    browsers,
    clock,
    limits: browserLimits,
    severalPrincipals: () => hasSeveralPrincipals(tokens),
    resolveHost,
    diagnose,
  })
}

function newWebhooks(holdfast: Holdfast, options: HandlerOptions, links: AskLinks): Webhooks {
  const { webhooks = [], webhookLimits: limits, resolveHost: resolve } = options
  return new Webhooks(holdfast.authority, {
    ...{ webhooks, limits, resolver: { resolve } },
    askLink: async (session, ask) => (await links.make(session, ask)).token,
  })
}

/** Not a closure: it would hold the request for as long as the socket lives. */
function destroyStream(this: Duplex): void {
  this.destroy()
}

function refusalHeaders({ code, details: { allowed } }: HoldfastError): Headers {
  if (Array.isArray(allowed)) return ['Allow', allowed.join(', ')]
  return ERROR_TABLE[code].status === 401 ? ['WWW-Authenticate', 'Bearer'] : []
}
