/**
 * Sends each request to the node that owns its session. A route says which session a request is
 * about; the owner is found before the handler runs. A handler refuses with `not_owner`, before it
 * has any effect, only if the session has moved meanwhile: then it is forwarded too. If the
 * owner is gone, it is tried here again, since by then the session may be this node's.
 *
 * A request is forwarded once: the node that receives it answers or refuses it (no loops). A node
 * that drains forwards what it does not begin any more to any other node.
 */
import type { IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  asHoldfastError,
  HoldfastError,
  type Cluster,
  type Holdfast,
  type SessionRef,
} from '../../core/index.ts'
import type {
  ForwardedSocket,
  ForwardedSocketOptions,
  SocketForwarder,
} from '../../doors/connect/socket.ts'
import type { Exchange } from '../../doors/exchange.ts'
import type { Route } from '../../doors/route.ts'
import { FORWARD_LIMITS, within } from '../limits.ts'
import { OwnerSocket } from './owner-socket.ts'
import { isUndone, RequestForwarder, type ProxyTarget, type Upgrade } from './request-forwarder.ts'
import { UNDONE_HEADER, type Seal } from './seal.ts'

export type ClusterOptions = {
  /** The secret that all nodes share, and no client knows. */
  readonly secret: string
}

/** A request, or an upgrade, that this node answers or forwards. */
type Forwardable = {
  readonly request: IncomingMessage
  readonly isGone: () => boolean
  /** Nothing has been sent or done, so that another node may answer. */
  readonly isUntouched: () => boolean
  /** The session that only its owner can answer about; null: any node can. */
  readonly session: () => SessionRef | null | Promise<SessionRef | null>
  /** The node that it asks for; null: it asks for none. */
  readonly node: () => string | null
  readonly handle: () => Promise<void> | void
  /** False: the other node did nothing, and it may be tried again. */
  readonly send: (target: ProxyTarget) => Promise<boolean>
}

/** The refusal of a server that is about to stop. Nothing was done. */
export function drainingError(): HoldfastError {
  return new HoldfastError('draining', 'the server is about to stop')
}

export class Forwarder implements SocketForwarder {
  /** By what became of the requests and sockets that came to the wrong node. */
  readonly counts = { passedOn: 0, triedAgain: 0, failed: 0, sockets: 0 }
  readonly #seal: Seal
  readonly #holdfast: Holdfast
  readonly #addressOf: (request: IncomingMessage) => string
  readonly #cluster: Cluster
  /** Answers of the store, for a moment, so that many requests at once cost one query. */
  readonly #cache = new Map<string, { readonly value: Promise<unknown>; readonly at: number }>()
  /** Also after the store is closed, so that a node that stops can still forward late requests. */
  #lastOthers: readonly string[] = []
  readonly requests: RequestForwarder
  readonly #underWay = new Set<Promise<void>>()

  /** `addressOf`: the client's address, also behind a proxy. */
  constructor(
    seal: Seal,
    cluster: Cluster,
    holdfast: Holdfast,
    addressOf: (request: IncomingMessage) => string,
  ) {
    this.#seal = seal
    this.#holdfast = holdfast
    this.#addressOf = addressOf
    this.#cluster = cluster
    this.requests = new RequestForwarder(seal)
  }

  /** Headers that mark a refusal, for the node that forwarded the request, as without effect. */
  refusalHeaders(request: IncomingMessage, { code, details }: HoldfastError): readonly string[] {
    return isUndone(code, details) && this.#seal.isOn(request) ? [UNDONE_HEADER, '1'] : []
  }

  /** Answers here or through the owner; throws why not. `refusal`: this node must not answer it. */
  serve(
    exchange: Exchange,
    { handle, session = () => null, node = () => null }: Pick<Route, 'handle' | 'session' | 'node'>,
    refusal: HoldfastError | null = null,
  ): Promise<void> {
    const { request, response } = exchange
    return this.#serve(refusal, {
      request,
      isGone: () => response.destroyed,
      isUntouched: () => !response.headersSent && !exchange.isCommitted,
      session: () => session(exchange),
      node: () => node(exchange),
      handle: () => handle(exchange),
      send: (target) => this.requests.send(exchange, target),
    })
  }

  /** The same for a socket that is not open yet. Once it is, its bytes pass unread. */
  serveUpgrade(upgrade: Upgrade, handle: () => Promise<void> | void): Promise<void> {
    const { request, stream } = upgrade
    return this.#serve(null, {
      request,
      isGone: () => stream.destroyed,
      isUntouched: () => true,
      session: () => null,
      node: () => null,
      handle,
      send: async (target) => {
        const isDone = await this.requests.tunnel(upgrade, target)
        if (isDone) this.counts.sockets += 1
        return isDone
      },
    })
  }

  async #serve(refusal: HoldfastError | null, one: Forwardable): Promise<void> {
    if (this.#seal.isOn(one.request)) {
      if (refusal !== null) throw refusal
      return one.handle()
    }
    const error = refusal ?? (await this.#tryHere(one))
    if (error === null) return
    const forwarding = this.#forward(one, error)
    const settled = forwarding.catch((thrown: unknown) => this.#failed(asHoldfastError(thrown)))
    this.#underWay.add(settled)
    void settled.finally(() => this.#underWay.delete(settled))
    await forwarding
  }

  /** Null if it was answered; otherwise why another node should answer it. */
  async #tryHere(one: Forwardable): Promise<HoldfastError | null> {
    const session = await one.session()
    const owner = session === null ? null : await this.ownerElsewhere(session)
    const node = (await this.#namedElsewhere(one)) ?? owner
    if (node !== null) {
      return new HoldfastError('not_owner', 'another node has to answer this', { node })
    }
    try {
      await one.handle()
      return null
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      if (!isUndone(error.code, error.details) || !one.isUntouched()) throw error
      return error
    }
  }

  /** Null if it asks for this node, or for none, or for one that cannot be reached. */
  async #namedElsewhere(one: Forwardable): Promise<string | null> {
    const node = one.node()
    if (node === null || node === this.#holdfast.authority.node) return null
    return (await this.#urlOf(node)) === null ? null : node
  }

  /** What the handler refuses by itself is no failure of forwarding. */
  #failed({ code, message, details }: HoldfastError): void {
    this.counts.failed += 1
    if (code !== 'owner_unreachable' && !isUndone(code, details)) return
    const node = typeof details['node'] === 'string' ? details['node'] : null
    const { diagnose } = this.#holdfast.authority
    diagnose('forward_failed', 'no node answered a request', { reason: code, node, error: message })
  }

  async #forward(one: Forwardable, refusal: HoldfastError): Promise<void> {
    const until = performance.now() + FORWARD_LIMITS.patienceMs
    let pause: number = FORWARD_LIMITS.againMs
    for (let error: HoldfastError | null = refusal; error !== null && !one.isGone();) {
      if (await this.#send(one, error)) return
      if (performance.now() > until) throw error
      await sleep(pause)
      pause = Math.min(2 * pause, FORWARD_LIMITS.againMsMax)
      this.counts.triedAgain += 1
      error = this.#holdfast.authority.draining ? drainingError() : await this.#tryHere(one)
    }
  }

  /** False: nothing was done, and it may be tried again. */
  async #send(one: Forwardable, { code, details }: HoldfastError): Promise<boolean> {
    const owner = typeof details['node'] === 'string' ? details['node'] : null
    if (code !== 'draining' && owner === null) return false
    const node = code === 'draining' ? null : owner
    const others = node === null ? await this.#others() : []
    const any = others[Math.floor(Math.random() * others.length)] ?? null
    // A store that cannot say where it is: it is tried again.
    const to = node === null ? any : await this.#urlOf(node).catch(() => null)
    const isAlive = async (): Promise<boolean> =>
      node === null ? (await this.#others()).includes(to ?? '') : (await this.#urlOf(node)) !== null
    const from = this.#addressOf(one.request)
    const isDone = to !== null && (await one.send({ to, from, isAlive }))
    if (isDone) this.counts.passedOn += 1
    // The node did not answer as the owner.
    const session = isDone || node === null ? null : await one.session()
    if (session !== null) this.#cache.delete(JSON.stringify(session))
    return isDone
  }

  /** For a socket that is open, and whose session turned out to be another node's. */
  open(node: string, options: ForwardedSocketOptions): ForwardedSocket {
    this.counts.sockets += 1
    // A store that cannot say: the client comes back.
    const url = this.#urlOf(node).catch(() => null)
    return new OwnerSocket(this.#seal, url, options)
  }

  /** Fetches the list of nodes while the store can still be asked. */
  async prepareToLeave(): Promise<void> {
    await this.#others()
  }

  /** Leaves clients time to notice that this node is about to stop. */
  async linger(msMax: number): Promise<void> {
    await sleep(Math.min(FORWARD_LIMITS.lingerMs, msMax))
  }

  /** Waits for what is under way, but not longer than `ms`. */
  async close(ms: number): Promise<void> {
    await within(ms, Promise.all(this.#underWay))
    this.requests.close()
  }

  /** The other node that owns the session; null if this one does, or none. `isNew`: as of now. */
  async ownerElsewhere(session: SessionRef, isNew = false): Promise<string | null> {
    const { authority } = this.#holdfast
    if (isNew) this.#cache.delete(JSON.stringify(session))
    const isHere =
      'id' in session
        ? authority.heldSession(session.id) !== null
        : authority.holdsKey(session.principal, session.key)
    if (isHere) return null
    const name = JSON.stringify(session)
    // A store that cannot say: the handler meets the same error, and reports it.
    const owner = await this.#cached(name, () => this.#cluster.ownerOf(session)).catch(() => null)
    if (owner !== null && owner !== authority.node) return owner
    // This node may own it in a moment, and be asked again at once.
    this.#cache.delete(name)
    return null
  }

  /** Null if the node is gone, or has given no address. */
  #urlOf(node: string): Promise<string | null> {
    return this.#cached(`node ${node}`, () => this.#cluster.urlOf(node))
  }

  #others(): Promise<readonly string[]> {
    return this.#cached('others', async () => {
      try {
        const self = this.#holdfast.authority.node
        const nodes = await this.#cluster.nodes()
        const others = nodes.filter(({ name, leaseMs }) => name !== self && leaseMs > 0)
        this.#lastOthers = others.flatMap(({ url }) => (url === null ? [] : [url]))
      } catch {
        // The store is closed, or cannot be reached: the nodes that were there last.
      }
      return this.#lastOthers
    })
  }

  /** What was fetched under this name a moment ago, or is fetched now. Errors are not cached. */
  #cached<Value>(name: string, fetch: () => Promise<Value>): Promise<Value> {
    const cached = this.#cache.get(name)
    if (cached !== undefined && performance.now() - cached.at < FORWARD_LIMITS.cacheMs) {
      return cached.value as Promise<Value>
    }
    if (this.#cache.size >= FORWARD_LIMITS.cachedMax) this.#cache.clear()
    const value = fetch()
    // The caller handles the error.
    value.catch(() => this.#cache.delete(name))
    this.#cache.set(name, { value, at: performance.now() })
    return value
  }
}
