/**
 * Access checks. Without tokens, programs on this machine and pages of this server may do
 * everything. With tokens, a client needs one, and may do what its scopes allow.
 *
 * A web page elsewhere can make a browser send requests here: by a name of its own that leads to
 * this address (refused by `Host`), across origins (refused by `Origin`), or where a browser sends
 * no origin, for pictures and the like (refused by `Sec-Fetch-Site`).
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { HoldfastError, invalid, LOCAL, type Clock } from '../core/index.ts'
import type { Exchange } from '../doors/exchange.ts'
import {
  assertMayDo,
  DEFAULT_PRINCIPAL,
  groupId,
  OPERATIONS,
  SCOPES,
  withIncluded,
  type Access,
  type Caller,
  type Operation,
  type Scope,
  type SharedKeys,
} from '../core/access.ts'
import { CLIENT_HEADER, SEAL_HEADER, type Seal } from './forwarding/seal.ts'
import { SERVER_LIMITS } from './limits.ts'
import { isLoopback, plainAddress, Rates, type RateLimits, type SharedRates } from './rates.ts'
import { principalOfToken, type TokenAccess, type TokenSource } from './tokens.ts'

/** What nodes know each other by, and count together. */
export type AccessCluster = { readonly seal: Seal; readonly rates: SharedRates }

export type AccessOptions = {
  /** Without them everything is allowed, and only loopback can be listened on. */
  readonly tokens?: TokenSource
  /** Names that this server is called by, besides its address and those of loopback. */
  readonly allowHosts?: readonly string[]
  /** Origins besides its own whose pages may use it, for example `https://app.example`. */
  readonly allowOrigins?: readonly string[]
  /** Every request comes through a proxy: a client's address is the last in `X-Forwarded-For`. */
  readonly trustProxy?: boolean
  /** Keys that begin so belong to a group: its name by their prefix. */
  readonly sharedKeys?: Readonly<Record<string, string>>
  readonly rates?: Partial<RateLimits>
}

/** What a token's holder sees whose source does not say. */
const DEFAULT_ACCESS: Pick<Access, 'principal' | 'groups'> = {
  principal: DEFAULT_PRINCIPAL,
  groups: [],
}

const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '[::1]']

/** What was let in by a token and still goes on: a request, a stream or a socket. */
type Revocable = {
  readonly token: string | undefined
  readonly scopes: readonly Scope[]
  /** What it was granted then. */
  readonly access: Access | null
  readonly end: () => void
  /** Its place in the list of them; -1: it is over. */
  index: number
}

/** Throws `invalid_field` unless a server with these options is safe where it listens. */
export function checkAccessOptions(boundHost: string, options: AccessOptions): void {
  const { tokens, allowHosts = [], allowOrigins = [] } = options
  if (tokens === undefined && !isLoopback(boundHost)) {
    const problem = `must be a loopback address without tokens: ${boundHost} is open to others`
    throw invalid('host', problem)
  }
  if (tokens === undefined && allowHosts.length > 0) {
    throw invalid('allowHosts', 'need tokens: without them only loopback is served')
  }
  if (isWildcard(boundHost) && allowHosts.length === 0) {
    throw invalid('allowHosts', `must name at least one host that ${boundHost} is reached by`)
  }
  for (const name of allowHosts) {
    if (hostName(name) === name.toLowerCase()) continue
    throw invalid('allowHosts', `must be names without scheme, port or *, not ${name}`)
  }
  for (const origin of allowOrigins) {
    if (/^[a-z][a-z\d+.-]*:\/\/[^/?#@*\s]+$/.test(origin)) continue
    throw invalid('allowOrigins', `must be like https://app.example, without path or *: ${origin}`)
  }
}

export class AccessPolicy {
  /** There are no tokens: every client that passes the checks may do everything. */
  readonly open: boolean
  /** Of pages that the operator allowed. */
  readonly origins: ReadonlySet<string>
  readonly #rates: Rates
  readonly #tokens: TokenSource | null
  readonly #hosts: ReadonlySet<string>
  readonly #trustProxy: boolean
  /** The longest prefix first. */
  #sharedKeys: readonly SharedKeys[] = []
  readonly #clock: Clock
  /** Null: there are no other nodes. */
  readonly #seal: Seal | null
  /** By what a source said of a token and its holder, for sources that keep these objects. */
  #callers = new WeakMap<TokenAccess, { scopes: readonly Scope[]; caller: Caller }>()
  /** Connections that are counted as a client's, each with its address. */
  readonly #counted = new WeakMap<Socket, string>()
  /**
   * The one place that ends these when their token is taken back or expires. An array: the tables
   * of a `Set` are linked, each to the one that replaces it. With every request added and deleted,
   * V8 kept all of them until its next full collection, and the requests that they refer to.
   */
  readonly #held: Revocable[] = []
  readonly #revocationTimer: NodeJS.Timeout | undefined
  #revision: number | null
  #revocationsAt = performance.now()

  constructor(
    boundHost: string,
    clock: Clock,
    options: AccessOptions,
    cluster: AccessCluster | null,
  ) {
    checkAccessOptions(boundHost, options)
    const { tokens = null, allowHosts = [], allowOrigins = [], trustProxy = false } = options
    this.open = tokens === null
    this.#rates = new Rates(clock, options.rates, this.open ? null : (cluster?.rates ?? null))
    this.#tokens = tokens
    this.#clock = clock
    this.#seal = cluster?.seal ?? null
    this.#trustProxy = trustProxy
    this.shareKeys(options.sharedKeys ?? {})
    const names = [...LOOPBACK_NAMES, urlHost(boundHost), ...allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.origins = new Set(allowOrigins)
    this.#revision = this.#revisionNow()
    if (this.open) return
    const { revocationMs } = SERVER_LIMITS
    this.#revocationTimer = setInterval(() => this.#revoke(), revocationMs).unref()
  }

  /** From now on keys that begin so belong to a group, and no others. */
  shareKeys(sharedKeys: Readonly<Record<string, string>>): void {
    this.#sharedKeys = Object.entries(sharedKeys)
      .map(([prefix, group]) => ({ prefix, group: groupId(group) }))
      .toSorted((one, other) => other.prefix.length - one.prefix.length)
    this.#callers = new WeakMap()
  }

  /**
   * What has to be waited for before a token is checked; null if nothing has, as for most. Rejects
   * if it cannot be checked now.
   */
  prepare(token: string | undefined): Promise<void> | null {
    if (token === undefined) return null
    return this.#tokens?.prepare?.(token, this.#clock.now()) ?? null
  }

  /** The first checks of any request: its head, its rate, its `Host` and its `Origin`. */
  check(request: IncomingMessage): void {
    checkHead(request)
    if (this.isForwarded(request)) return
    const { headers, socket } = request
    if (!this.open) {
      // The holder of a good token has a rate of its own.
      this.#rates.admit(this.addressOf(request), () => {
        const token = bearerToken(headers) ?? null
        return token === null || this.grant(token) === null ? null : token
      })
    } else if (!isLoopback(plainAddress(socket.localAddress ?? 'localhost'))) {
      // The server of another program may listen anywhere.
      throw new HoldfastError('host_refused', 'without tokens only loopback addresses are served')
    }
    if (!this.#hosts.has(hostName(headers.host ?? '') ?? '')) {
      throw new HoldfastError('host_refused', 'the Host header is not a name of this server')
    }
    this.#checkOrigin(headers)
  }

  /** Browsers mark requests that a page of another site caused. Following a link is allowed. */
  #checkOrigin(headers: IncomingHttpHeaders): void {
    const { origin, host, 'sec-fetch-site': site, 'sec-fetch-mode': mode } = headers
    const isForeign =
      origin === undefined
        ? (site === 'cross-site' || site === 'same-site') && mode !== 'navigate'
        : origin !== `http://${host}` && origin !== `https://${host}` && !this.origins.has(origin)
    if (isForeign) throw originRefused()
  }

  /**
   * Throws unless the request may do this. Returns whose request it is: this is the one place where
   * that is found out.
   */
  authorize(
    request: IncomingMessage,
    operation: Operation,
    token = bearerToken(request.headers),
  ): Caller | null {
    const caller = this.callerOf(token)
    if (this.open || OPERATIONS[operation] === null) return caller
    if (caller === null) {
      if (token !== undefined) this.failed(this.addressOf(request))
      throw new HoldfastError('unauthorized', 'a good token is needed, as Authorization: Bearer')
    }
    assertMayDo(caller.access?.scopes ?? SCOPES, operation)
    return caller
  }

  /** On whose behalf the holder of this token acts; null if the token is unknown. */
  callerOf(token: string | undefined): Caller | null {
    if (this.#tokens === null) return { by: LOCAL, access: null }
    if (token === undefined) return null
    const now = this.#clock.now()
    const found = this.#tokens.accessOf?.(token, now) ?? null
    const scopes = found?.scopes ?? this.#tokens.scopesOf(token, now)
    if (scopes === null) return null
    const known = found === null ? undefined : this.#callers.get(found)
    if (known?.scopes === scopes) return known.caller
    const { by = this.#tokens.principalOf?.(token) ?? principalOfToken(token), ...more } =
      found ?? {}
    const sharedKeys = this.#sharedKeys.filter(({ group }) => more.groups?.includes(group))
    // A source may know fewer scopes than there are by now.
    const access = { ...DEFAULT_ACCESS, ...more, scopes: withIncluded(scopes), sharedKeys }
    const caller = { by, access }
    if (found?.by !== undefined) this.#callers.set(found, { scopes, caller })
    return caller
  }

  /** What this token's holder may do, all included; null: nothing. Undefined: none was shown. */
  grant(token: string | undefined): readonly Scope[] | null {
    if (this.#tokens === null) return SCOPES
    return this.callerOf(token)?.access?.scopes ?? null
  }

  /**
   * `end` is called when this token no longer has all of these scopes, perhaps at once. The
   * returned function is for when what was let in by it is over.
   */
  hold(token: string | undefined, scopes: readonly Scope[], end: () => void): () => void {
    if (this.open) return () => undefined
    const access = this.callerOf(token)?.access ?? null
    const revocable = { token, scopes, access, end, index: -1 }
    if (!this.#isGood(revocable)) end()
    this.#add(revocable)
    return () => this.#remove(revocable)
  }

  /** The same for a request that was authorized now. */
  holdRequest(exchange: Exchange, operation: Operation, token: string | undefined): void {
    if (this.open || OPERATIONS[operation] === null) return
    exchange.holdBy(operation)
    const end = (): void => exchange.revoke()
    const { access = null } = exchange.caller ?? {}
    const revocable = { token, scopes: exchange.heldBy, access, end, index: -1 }
    this.#add(revocable)
    exchange.response.once('close', () => this.#remove(revocable))
  }

  #add(revocable: Revocable): void {
    revocable.index = this.#held.push(revocable) - 1
  }

  /** The last one takes its place. */
  #remove(revocable: Revocable): void {
    const { index } = revocable
    const last = index < 0 ? undefined : this.#held.pop()
    revocable.index = -1
    if (last === undefined || last === revocable) return
    this.#held[index] = last
    last.index = index
  }

  #isGood({ token, scopes, access: before }: Revocable): boolean {
    const { access = null } = this.callerOf(token) ?? {}
    if (access === null || !scopes.every((scope) => access.scopes.includes(scope))) return false
    return before === null || reachesAll(access, before)
  }

  /** Another number whenever a token may have lost something; null: the tokens cannot say. */
  #revisionNow(): number | null {
    return this.#tokens?.revision?.(this.#clock.now()) ?? null
  }

  /** Ends what is no longer good, once. */
  #revoke(): void {
    const revision = this.#revisionNow()
    const now = performance.now()
    const isDue = now - this.#revocationsAt >= SERVER_LIMITS.revocationBlindMs
    if (revision === null ? !isDue : revision === this.#revision) return
    this.#revision = revision
    this.#revocationsAt = now
    for (const revocable of [...this.#held]) {
      if (this.#isGood(revocable)) continue
      this.#remove(revocable)
      revocable.end()
    }
  }

  close(): void {
    clearInterval(this.#revocationTimer)
    this.#rates.close()
    for (const revocable of this.#held.splice(0)) revocable.index = -1
  }

  /**
   * A client at this address showed a secret that is not good: a token, a link, a resume token.
   * Throws `too_many` if there were too many of them. Only after the secret was checked: a good one
   * is good whatever else came from its address.
   */
  failed(address: string): void {
    if (!this.open) this.#rates.failed(address)
  }

  /** Counts a new connection until it closes; false if its client has too many. */
  connected(socket: Socket): boolean {
    // Always read: Node remembers it then, also for reports after the socket was destroyed.
    const address = plainAddress(socket.remoteAddress ?? '')
    if (this.open || this.#trustProxy) return true
    if (!this.#rates.connected(address)) return false
    this.#counted.set(socket, address)
    socket.once('close', () => this.#uncount(socket))
    return true
  }

  #uncount(socket: Socket): void {
    const address = this.#counted.get(socket)
    if (address !== undefined) this.#rates.disconnected(address)
    this.#counted.delete(socket)
  }

  /** Another node has forwarded it, and has checked its head. Its connection is no client's. */
  isForwarded(request: IncomingMessage): boolean {
    if (this.#seal?.isOn(request) !== true) return false
    this.#uncount(request.socket)
    return true
  }

  /** Where the request comes from, for limits only. */
  addressOf(request: IncomingMessage): string {
    const { headers, socket } = request
    if (this.isForwarded(request)) return String(headers[CLIENT_HEADER])
    const chain = this.#trustProxy ? String(headers['x-forwarded-for'] ?? '') : ''
    const last = chain.slice(chain.lastIndexOf(',') + 1).trim()
    return last || plainAddress(socket.remoteAddress ?? '')
  }
}

/** Whether a caller with this access sees all that it saw with the one before. */
function reachesAll(access: Access, before: Access): boolean {
  const hasLostAdmin = before.scopes.includes('admin') && !access.scopes.includes('admin')
  const hasGroups = before.groups.every((group) => access.groups.includes(group))
  const limitsOf = ({ principal, agents, browsers }: Access): string =>
    JSON.stringify([principal, agents, browsers])
  return !hasLostAdmin && hasGroups && limitsOf(access) === limitsOf(before)
}

export function originRefused(): HoldfastError {
  return new HoldfastError('origin_refused', 'a page of another origin may not do this')
}

export function bearerToken({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization ?? '')?.[1]
}

/**
 * Of these Node keeps the first and drops the rest, or joins them to one that means nothing. By
 * their lengths, so that other names need not be looked at.
 */
const ONCE: ReadonlyMap<number, string> = new Map(
  ['host', 'authorization', 'sec-fetch-site'].map((name) => [name.length, name]),
)

/** A target that names its host itself, as clients send it to a proxy (RFC 9112, 3.2.2). */
const ABSOLUTE = /^https?:\/\/([^/?#]*)(.*)$/i

/** Throws unless the head is within its bounds and means one thing. Makes its target a path. */
function checkHead(request: IncomingMessage): void {
  const { rawHeaders, headers, url = '' } = request
  let bytes = url.length
  let seen = ''
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const { length } = rawHeaders[index] ?? ''
    bytes += length + (rawHeaders[index + 1] ?? '').length
    const name = ONCE.get(length)
    if (name === undefined || rawHeaders[index]?.toLowerCase() !== name) continue
    if (seen.includes(name)) {
      throw new HoldfastError('bad_request', `the header ${name} must be there only once`)
    }
    seen += name
  }
  // A forwarded request has a few headers more than its client sent.
  const { headersMax, headerBytesMax, forwardedHeaders, forwardedBytes } = SERVER_LIMITS
  const isForwarded = headers[SEAL_HEADER] !== undefined
  const countMax = headersMax + (isForwarded ? forwardedHeaders : 0)
  const bytesMax = headerBytesMax + (isForwarded ? forwardedBytes : 0)
  if (rawHeaders.length > 2 * countMax || bytes > bytesMax) throw headTooLarge()
  const [, host = '', rest = ''] = ABSOLUTE.exec(url) ?? []
  if (host === '') return
  if (host.toLowerCase() !== headers.host?.toLowerCase()) {
    throw new HoldfastError('bad_request', 'the target and the Host header name different hosts')
  }
  request.url = rest.startsWith('/') ? rest : `/${rest}`
}

export function headTooLarge(): HoldfastError {
  const { headersMax, headerBytesMax } = SERVER_LIMITS
  const bounds = `${headersMax} headers, ${headerBytesMax} bytes with the path`
  return new HoldfastError('headers_too_large', `the request's head is over its bound: ${bounds}`)
}

/** Bound to this, a server is reached by every address of its machine. */
export function isWildcard(address: string): boolean {
  return address === '0.0.0.0' || address === '::'
}

export function urlHost(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}

/** A name or an address, and perhaps a port; IPv6 has brackets, and colons inside them. */
const HOST = /^([a-z\d_.-]+|\[[\da-f:.]+\])(?::(\d{1,5}))?$/i
const PORT_MAX = 65_535

/** A `Host` without its port; null if it is anything but a name and perhaps a port. */
function hostName(host: string): string | null {
  const [, name = null, port = ''] = HOST.exec(host) ?? []
  return Number(port) > PORT_MAX ? null : (name?.toLowerCase() ?? null)
}
