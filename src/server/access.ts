/**
 * Who is let in. Without tokens: programs on this machine, and pages that this server served. With
 * tokens: whoever shows a good one, each for what its scopes allow.
 *
 * A web page elsewhere can make a browser send requests here: by a name of its own that leads to
 * this address (refused by `Host`), across origins (refused by `Origin`), or where a browser sends
 * no origin, for pictures and the like (refused by `Sec-Fetch-Site`).
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { HoldfastError, invalid, LOCAL, type Clock, type Principal } from '../core/index.ts'
import type { Exchange } from '../doors/exchange.ts'
import {
  assertMayDo,
  mayDo,
  OPERATIONS,
  SCOPES,
  type Operation,
  type Scope,
} from '../doors/scopes.ts'
import { hostName, isHostName, isLoopback, isWildcard, plainAddress, urlHost } from './addresses.ts'
import { Admissions } from './admissions.ts'
import { CLIENT_HEADER } from './forwarding/seal.ts'
import { checkHead } from './request-head.ts'
import { Rates, type RateLimits } from './rates.ts'
import { principalOfToken, type TokenSource } from './tokens.ts'

export type AccessOptions = {
  /** Without them everything is allowed, and only loopback can be listened on. */
  readonly tokens?: TokenSource
  /** Names that this server is called by, besides its address and those of loopback. */
  readonly allowHosts?: readonly string[]
  /** Origins besides its own whose pages may use it, for example `https://app.example`. */
  readonly allowOrigins?: readonly string[]
  /** Every request comes through a proxy: a client's address is the last in `X-Forwarded-For`. */
  readonly trustProxy?: boolean
  readonly rates?: Partial<RateLimits>
}

const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]'] as const

/** Throws `invalid_field` unless a server with these options is safe where it listens. */
export function checkAccessOptions(boundHost: string, options: AccessOptions): void {
  const { tokens, allowHosts = [], allowOrigins = [] } = options
  if (tokens === undefined && !isLoopback(boundHost)) {
    throw invalid(
      'host',
      `must be a loopback address without tokens: ${boundHost} is open to others`,
    )
  }
  if (tokens === undefined && allowHosts.length > 0) {
    throw invalid('allowHosts', 'need tokens: without them only loopback is served')
  }
  if (isWildcard(boundHost) && allowHosts.length === 0) {
    throw invalid('allowHosts', `must name at least one host that ${boundHost} is reached by`)
  }
  for (const name of allowHosts) {
    if (isHostName(name)) continue
    throw invalid('allowHosts', `must be names without scheme, port or *, not ${name}`)
  }
  for (const origin of allowOrigins) {
    if (/^[a-z][a-z\d+.-]*:\/\/[^/?#@*\s]+$/.test(origin)) continue
    throw invalid('allowOrigins', `must be like https://app.example, without path or *: ${origin}`)
  }
}

export class AccessPolicy {
  /** Everybody who gets through may do everything. */
  readonly open: boolean
  readonly rates: Rates
  readonly #tokens: TokenSource | null
  readonly #hosts: ReadonlySet<string>
  readonly #origins: ReadonlySet<string>
  readonly #trustProxy: boolean
  readonly #clock: Clock
  /** Null where there are no tokens to be taken back. */
  readonly #admissions: Admissions | null
  /** Another node has taken the first look at it. */
  readonly #isPassedOn: (request: IncomingMessage) => boolean

  constructor(
    boundHost: string,
    clock: Clock,
    options: AccessOptions = {},
    isPassedOn: (request: IncomingMessage) => boolean = () => false,
  ) {
    checkAccessOptions(boundHost, options)
    this.#isPassedOn = isPassedOn
    const { tokens = null, allowHosts = [], allowOrigins = [], trustProxy = false } = options
    this.open = tokens === null
    this.rates = new Rates(clock, options.rates)
    this.#tokens = tokens
    this.#clock = clock
    const revision = (): number | null => tokens?.revision?.(clock.now()) ?? null
    this.#admissions = tokens === null ? null : new Admissions(revision)
    this.#trustProxy = trustProxy
    const names = [...LOOPBACK_NAMES, urlHost(boundHost), ...allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.#origins = new Set(allowOrigins)
  }

  /** The first look at any request: its head, its rate, its `Host` and its `Origin`. */
  check(request: IncomingMessage): void {
    checkHead(request)
    if (this.#isPassedOn(request)) return
    if (!this.open) this.rates.admit(this.addressOf(request), () => this.#goodToken(request))
    this.#checkHost(request.headers)
    this.#checkOrigin(request.headers)
  }

  /**
   * Throws unless the request may do this. Returns whose request it is: this is the one place where
   * that is found out.
   */
  authorize(
    request: IncomingMessage,
    operation: Operation,
    token = bearerToken(request.headers),
  ): Principal | null {
    if (this.open || OPERATIONS[operation] === null) return this.principalOf(token)
    const scopes = this.grant(token)
    if (scopes === null) {
      if (token !== undefined) this.failed(this.addressOf(request))
      throw new HoldfastError('unauthorized', 'a good token is needed, as Authorization: Bearer')
    }
    assertMayDo(scopes, operation)
    return this.principalOf(token)
  }

  /** Whom logs name as the holder of this token; null: nobody whom we know. */
  principalOf(token: string | undefined): Principal | null {
    if (this.#tokens === null) return LOCAL
    if (token === undefined || this.grant(token) === null) return null
    return this.#tokens.principalOf?.(token) ?? principalOfToken(token)
  }

  /** What this token's holder may do, all included; null: nothing. Undefined: none was shown. */
  grant(token: string | undefined): readonly Scope[] | null {
    if (this.#tokens === null) return SCOPES
    return token === undefined ? null : this.#tokens.scopesOf(token, this.#clock.now())
  }

  /**
   * `end` is called when this token no longer has all of these scopes, perhaps at once. The
   * returned function is for when what was let in by it is over.
   */
  hold(token: string | undefined, scopes: readonly Scope[], end: () => void): () => void {
    if (this.#admissions === null) return () => undefined
    const isGood = (): boolean => {
      const granted = this.grant(token) ?? []
      return scopes.every((scope) => granted.includes(scope))
    }
    if (!isGood()) end()
    return this.#admissions.add(isGood, end)
  }

  /** The same for a request that was authorized now. */
  holdRequest(
    exchange: Exchange,
    operation: Operation,
    token = bearerToken(exchange.request.headers),
  ): void {
    if (this.#admissions === null || OPERATIONS[operation] === null) return
    const isGood = (): boolean => mayDo(this.grant(token) ?? [], operation)
    exchange.response.once(
      'close',
      this.#admissions.add(isGood, () => exchange.revoke()),
    )
  }

  close(): void {
    this.#admissions?.close()
  }

  /**
   * A client at this address showed a secret that is not good: a token, a link, a resume token.
   * Throws `too_many` if there were too many of them. Only after the secret was checked: a good one
   * is good whatever else came from its address.
   */
  failed(address: string): void {
    if (!this.open) this.rates.failed(address)
  }

  /** The token of the request, if it is good: its holder has a rate of its own. */
  #goodToken({ headers }: IncomingMessage): string | null {
    const token = bearerToken(headers)
    return token === undefined || this.grant(token) === null ? null : token
  }

  /** A connection was made; false if its client has too many. */
  connected(address: string): boolean {
    return this.open || this.#trustProxy || this.rates.connected(address)
  }

  disconnected(address: string): void {
    if (!this.open && !this.#trustProxy) this.rates.disconnected(address)
  }

  /** Where the request comes from, for limits only. */
  addressOf(request: IncomingMessage): string {
    const { headers, socket } = request
    if (this.#isPassedOn(request)) return String(headers[CLIENT_HEADER])
    const forwarded = this.#trustProxy ? headers['x-forwarded-for'] : undefined
    const last = String(forwarded ?? '')
      .split(',')
      .at(-1)
      ?.trim()
    return last || plainAddress(socket.remoteAddress ?? '')
  }

  /** A page of another origin that the operator allowed. */
  isAllowedOrigin(origin: string): boolean {
    return this.#origins.has(origin)
  }

  #checkHost({ host = '' }: IncomingHttpHeaders): void {
    if (this.#hosts.has(hostName(host) ?? '')) return
    throw new HoldfastError('host_refused', 'the Host header is not a name of this server')
  }

  #checkOrigin(headers: IncomingHttpHeaders): void {
    const { origin, host } = headers
    if (origin === undefined) return checkFetchSite(headers)
    if (origin === `http://${host}` || origin === `https://${host}`) return
    if (this.#origins.has(origin)) return
    throw originRefused()
  }
}

/** A browser tells when a page elsewhere embeds something of ours. Following a link is fine. */
function checkFetchSite(headers: IncomingHttpHeaders): void {
  const site = headers['sec-fetch-site']
  const isForeign = site === 'cross-site' || site === 'same-site'
  if (isForeign && headers['sec-fetch-mode'] !== 'navigate') throw originRefused()
}

function originRefused(): HoldfastError {
  return new HoldfastError('origin_refused', 'a page of another origin may not do this')
}

/** The token of `Authorization: Bearer TOKEN`, if there is one. */
export function bearerToken({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization ?? '')?.[1]
}
