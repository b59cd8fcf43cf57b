/**
 * Requests that came to the wrong node. Every handler refuses with `not_owner` before it does
 * anything, so what was refused so goes to the owner, and if that is gone it is tried here again:
 * by then the session may be ours. A node that drains passes on what it takes no more itself.
 *
 * A request is passed on once: who receives it answers it or refuses it (no loops).
 */
import type { IncomingMessage } from 'node:http'
import { asHoldfastError, HoldfastError, type Holdfast } from '../../core/index.ts'
import type {
  SocketForwarder,
  ForwardedSocket,
  ForwardedSocketOptions,
} from '../../doors/connect/socket.ts'
import type { Exchange } from '../../doors/exchange.ts'
import { RequestForwarder, isUndone } from './request-forwarder.ts'
import { Directory } from './directory.ts'
import { FORWARD_LIMITS } from './limits.ts'
import { Owners } from './owners.ts'
import { OwnerSocket } from './owner-socket.ts'
import { UNDONE_HEADER, type Seal } from './seal.ts'
import { Tunnels, type Upgrade } from './tunnels.ts'

export type ClusterOptions = {
  /** What nodes know each other by: the same on all of them, and nobody else's. */
  readonly secret: string
}

export type ForwarderParts = {
  readonly seal: Seal
  readonly holdfast: Holdfast
  /** The client's address, also behind a proxy. */
  readonly addressOf: (request: IncomingMessage) => string
}

export type ForwardCounts = {
  passedOn: number
  triedAgain: number
  failed: number
  sockets: number
}

/** A request or a socket on its way: it goes elsewhere, or is answered here after all. */
type Errand = {
  readonly request: IncomingMessage
  readonly isGone: () => boolean
  /** Whether another node may do what was refused here. */
  readonly mayForward: (error: HoldfastError) => boolean
  /** False: nothing was done. */
  readonly carry: (way: Way) => Promise<boolean>
  readonly handle: () => Promise<void> | void
}

type Way = {
  readonly to: string
  readonly from: string
  readonly isAlive: () => Promise<boolean>
}

/** What a server that is about to stop says to those who come; nothing was done for them. */
export function drainingError(): HoldfastError {
  return new HoldfastError('draining', 'the server is about to stop')
}

export class Forwarder implements SocketForwarder {
  readonly seal: Seal
  readonly counts: ForwardCounts = { passedOn: 0, triedAgain: 0, failed: 0, sockets: 0 }
  readonly #holdfast: Holdfast
  readonly #addressOf: (request: IncomingMessage) => string
  readonly #directory: Directory
  readonly #requests: RequestForwarder
  readonly #tunnels: Tunnels
  readonly #owners = new Owners()
  readonly #underWay = new Set<Promise<void>>()

  private constructor(directory: Directory, { seal, holdfast, addressOf }: ForwarderParts) {
    this.seal = seal
    this.#holdfast = holdfast
    this.#addressOf = addressOf
    this.#directory = directory
    this.#requests = new RequestForwarder(this.seal)
    this.#tunnels = new Tunnels(this.seal)
  }

  /** Null where there are no other nodes to pass anything on to. */
  static from(parts: Omit<ForwarderParts, 'seal'> & { seal: Seal | null }): Forwarder | null {
    const { store, node } = parts.holdfast.authority
    const { seal } = parts
    if (seal === null || store.cluster === undefined) return null
    return new Forwarder(new Directory(store.cluster, node), { ...parts, seal })
  }

  /** Whether another node may do what was refused here. */
  mayForward({ request, response }: Exchange, { code, details }: HoldfastError): boolean {
    return isUndone(code, details) && !response.headersSent && !this.seal.isOn(request)
  }

  /** What another node is told of a refusal, beside the refusal itself. */
  refusalHeaders(request: IncomingMessage, { code, details }: HoldfastError): readonly string[] {
    return isUndone(code, details) && this.seal.isOn(request) ? [UNDONE_HEADER, '1'] : []
  }

  /** That another node had the session a moment ago: it is asked first, and it alone decides. */
  hint({ request }: Exchange): HoldfastError | null {
    const node = this.#owners.of(request)
    if (node === null || this.seal.isOn(request)) return null
    return new HoldfastError('not_owner', 'the session is held by another node', { node })
  }

  /** Sees that the exchange is answered, here (by `handle`) or elsewhere; or throws why not. */
  forward(
    exchange: Exchange,
    refusal: HoldfastError,
    handle: () => Promise<void> | void,
  ): Promise<void> {
    const { request, response } = exchange
    return this.#seeTo(refusal, {
      request,
      isGone: () => response.destroyed,
      mayForward: (error) => this.mayForward(exchange, error),
      carry: (way) => this.#requests.carry({ exchange, ...way }),
      handle,
    })
  }

  /** The same for a socket that is not open yet; from then on nothing here knows what it says. */
  forwardUpgrade(
    upgrade: Upgrade,
    refusal: HoldfastError,
    handle: () => Promise<void> | void,
  ): Promise<void> {
    const { request, stream } = upgrade
    const mayForward = ({ code, details }: HoldfastError): boolean =>
      isUndone(code, details) && !this.seal.isOn(request)
    if (!mayForward(refusal)) return Promise.reject(refusal)
    return this.#seeTo(refusal, {
      request,
      isGone: () => stream.destroyed,
      mayForward,
      carry: (way) => this.#open(upgrade, way),
      handle,
    })
  }

  async #open(upgrade: Upgrade, way: Way): Promise<boolean> {
    const isDone = await this.#tunnels.open({ ...upgrade, ...way })
    if (isDone) this.counts.sockets += 1
    return isDone
  }

  #seeTo(refusal: HoldfastError, errand: Errand): Promise<void> {
    const forwarding = this.#forward(refusal, errand)
    const settled = forwarding.catch((thrown: unknown) => {
      this.counts.failed += 1
      this.#tellFailed(asHoldfastError(thrown))
    })
    this.#underWay.add(settled)
    void settled.finally(() => this.#underWay.delete(settled))
    return forwarding
  }

  /** What the handler refuses by itself is no failure of forwarding. */
  #tellFailed({ code, message, details }: HoldfastError): void {
    if (code !== 'owner_unreachable' && !isUndone(code, details)) return
    const node = typeof details['node'] === 'string' ? details['node'] : null
    const { diagnose } = this.#holdfast.authority
    diagnose('forward_failed', 'no node answered a request', { reason: code, node, error: message })
  }

  async #forward(refusal: HoldfastError, errand: Errand): Promise<void> {
    const until = performance.now() + FORWARD_LIMITS.patienceMs
    let pause: number = FORWARD_LIMITS.againMs
    for (let error = refusal; !errand.isGone();) {
      if (await this.#carry(errand, error)) return
      if (performance.now() > until) throw error
      await new Promise((resolve) => setTimeout(resolve, pause))
      pause = Math.min(2 * pause, FORWARD_LIMITS.againMsMax)
      this.counts.triedAgain += 1
      if (this.#holdfast.authority.draining) {
        error = drainingError()
        continue
      }
      try {
        return await errand.handle()
      } catch (thrown) {
        error = asHoldfastError(thrown)
        if (!errand.mayForward(error)) throw error
      }
    }
  }

  /** False: nothing was done, and it may be tried again. */
  async #carry({ request, carry }: Errand, { code, details }: HoldfastError): Promise<boolean> {
    const { node } = details
    if (code === 'not_owner' && typeof node !== 'string') return false
    const to = code === 'draining' ? await this.#anyOther() : await this.#urlOf(node as string)
    if (to === null) return false
    const isAlive = async (): Promise<boolean> =>
      code === 'draining'
        ? (await this.#directory.others()).includes(to)
        : (await this.#directory.urlOf(node as string)) !== null
    const isDone = await carry({ to, from: this.#addressOf(request), isAlive })
    if (isDone) this.counts.passedOn += 1
    this.#owners.learn(request, isDone && typeof node === 'string' ? node : null)
    return isDone
  }

  async #anyOther(): Promise<string | null> {
    const others = await this.#directory.others()
    return others[Math.floor(Math.random() * others.length)] ?? null
  }

  /** Null too if the store cannot say. */
  #urlOf(node: string): Promise<string | null> {
    return this.#directory.urlOf(node).catch(() => null)
  }

  /** For a socket that is open, and whose session turned out to be another node's. */
  open(node: string, options: ForwardedSocketOptions): ForwardedSocket {
    this.counts.sockets += 1
    return new OwnerSocket(this.seal, this.#urlOf(node), options)
  }

  /** Learns whom to pass on to, while the store can still say. */
  async prepareToLeave(): Promise<void> {
    await this.#directory.others()
  }

  /** Leaves time to those who do not know yet that this node is about to go. */
  async linger(msMax: number): Promise<void> {
    const ms = Math.min(FORWARD_LIMITS.lingerMs, msMax)
    await new Promise((resolve) => setTimeout(resolve, ms))
  }

  /** Those who talk with another node through this one lose their connections, and come back. */
  cutSockets(): void {
    this.#tunnels.close()
  }

  /** Waits for what is under way, but not longer than `ms`. */
  async close(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, ms)
    })
    await Promise.race([Promise.all(this.#underWay), late])
    clearTimeout(timer)
    this.#requests.close()
  }
}
