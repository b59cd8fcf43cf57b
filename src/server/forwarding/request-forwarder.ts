/**
 * Requests on their way to another node and back. Bodies and streams pass as they come.
 *
 * I11: what was surely not delivered, or was refused because nothing was done, may be tried again;
 * what may have been carried out may not, unless trying again is harmless.
 *
 * A request to upgrade goes there as it is, and from then on every byte, both ways. Nothing is read
 * on the way, so whatever the two ends agree on holds here too.
 */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Duplex } from 'node:stream'
import { Histogram, HoldfastError } from '../../core/index.ts'
import type { Exchange } from '../../doors/exchange.ts'
import { headText } from '../http-server.ts'
import { FORWARD_LIMITS } from '../limits.ts'
import { CLIENT_HEADER, SEAL_HEADER, UNDONE_HEADER, type Seal } from './seal.ts'

/** Between nodes only: removed from requests of clients and from answers to them. */
const BETWEEN_NODES = [SEAL_HEADER, CLIENT_HEADER, UNDONE_HEADER]
/** Headers of one connection only. The length is set again. */
const NOT_PASSED_ON: ReadonlySet<string> = new Set([
  ...'connection keep-alive proxy-connection transfer-encoding te trailer upgrade'.split(' '),
  ...'expect content-length'.split(' '),
  ...BETWEEN_NODES,
])
/** Of an upgrade. A refusal is forwarded without framing: it ends with the connection. */
const NOT_TUNNELLED: ReadonlySet<string> = new Set([...BETWEEN_NODES, 'transfer-encoding'])

/** Why a connection was never made. */
const UNREACHED: ReadonlySet<string> = new Set(
  'ECONNREFUSED EHOSTUNREACH ENETUNREACH ENOTFOUND EAI_AGAIN ETIMEDOUT'.split(' '),
)

const AGENT_OPTIONS = { keepAlive: true, maxFreeSockets: FORWARD_LIMITS.idleSocketsMax }

/** Whether a refusal says that nothing was done, and another node, or this one, may do it. */
export function isUndone(code: string, details: Readonly<Record<string, unknown>>): boolean {
  return code === 'not_owner' || (code === 'draining' && details['stopped'] !== true)
}

export type ProxyTarget = {
  readonly to: string
  readonly from: string
  readonly isAlive: () => Promise<boolean>
}

/** A socket that is not open yet. */
export type Upgrade = {
  readonly request: IncomingMessage
  readonly stream: Duplex
  readonly head: Buffer
}

export class RequestForwarder {
  /** From a request to another node to the head of its answer. */
  readonly times = new Histogram()
  readonly #seal: Seal
  readonly #http = new HttpAgent(AGENT_OPTIONS)
  readonly #https = new HttpsAgent(AGENT_OPTIONS)
  /** Both ends of every tunnel. */
  readonly #tunnels = new Set<Duplex>()

  constructor(seal: Seal) {
    this.#seal = seal
  }

  close(): void {
    this.#http.destroy()
    this.#https.destroy()
  }

  /** At both ends that is a connection which was lost: clients reconnect. */
  cutTunnels(): void {
    for (const stream of this.#tunnels) stream.destroy()
  }

  /** True if the caller has its answer; false if nothing was done and it may be tried again. */
  async send(exchange: Exchange, target: ProxyTarget): Promise<boolean> {
    // Nothing was sent yet: an error in the body is the client's, and refused as such.
    const body = await exchange.body()
    const began = performance.now()
    let answer: IncomingMessage
    try {
      answer = await this.#ask(exchange, target, body)
    } catch (thrown) {
      if (exchange.response.destroyed) return true
      if (isUnreached(thrown) || isHarmless(exchange)) return false
      throw new HoldfastError(
        'owner_unreachable',
        'the node that owns the session did not answer: whether the request was carried out is ' +
          'not known',
      )
    }
    this.times.observeMs(performance.now() - began)
    if (answer.headers[UNDONE_HEADER] === undefined) return pass(exchange, answer)
    answer.resume()
    return false
  }

  #ask(exchange: Exchange, target: ProxyTarget, body: Buffer): Promise<IncomingMessage> {
    const { request, response } = exchange
    return new Promise((resolve, reject) => {
      const headers = without(NOT_PASSED_ON, request.rawHeaders)
      if (body.length > 0) headers.push('Content-Length', String(body.length))
      const agent = target.to.startsWith('https:') ? this.#https : this.#http
      const asking = this.#request(request, target, { headers, agent })
      const giveUp = (code: string): void => {
        asking.destroy(Object.assign(new Error(code), { code }))
      }
      const callerLeft = (): void => giveUp('ECANCELED')
      response.once('close', callerLeft)
      limitConnecting(asking, () => giveUp('ETIMEDOUT'))
      const stopWatching = watch(target, () => giveUp('EOWNERLOST'))
      asking.once('close', () => {
        stopWatching()
        response.off('close', callerLeft)
      })
      asking.on('response', resolve).on('error', reject)
      asking.end(body)
    })
  }

  /** The same request to another node, with these headers and the seal. */
  #request(
    { method = '', url = '' }: IncomingMessage,
    { to, from }: ProxyTarget,
    { headers, agent }: { headers: readonly string[]; agent: HttpAgent | false },
  ): ClientRequest {
    const { protocol, hostname, port, pathname } = new URL(to)
    const path = pathname.replace(/\/$/, '') + url
    const sealed = [SEAL_HEADER, this.#seal.make({ method, url: path, from }), CLIENT_HEADER, from]
    const address = { hostname: hostname.replaceAll(/[[\]]/g, ''), port, method, path }
    // As a list, so that Node adds no Host of its own.
    const all = [...headers, ...sealed] as unknown as Record<string, string>
    const options = { ...address, headers: all, agent }
    return protocol === 'https:' ? httpsRequest(options) : httpRequest(options)
  }

  /**
   * True if the client has its answer; false if another may be asked. What was asked and not
   * answered may be asked again: a socket that never opened has done nothing.
   */
  async tunnel(upgrade: Upgrade, target: ProxyTarget): Promise<boolean> {
    const { stream } = upgrade
    // It is tried again; if that fails too, `forward_failed` reports it.
    const answer = await this.#askUpgrade(upgrade, target).catch(() => null)
    if (stream.destroyed) answer?.far?.destroy()
    if (answer === null || stream.destroyed) return stream.destroyed
    const { message, far, begun } = answer
    if (far === null && message.headers[UNDONE_HEADER] !== undefined) {
      message.resume()
      return false
    }
    const { statusCode = 502, statusMessage = '', rawHeaders } = message
    stream.write(headText(statusCode, statusMessage, without(NOT_TUNNELLED, rawHeaders)))
    if (far === null) {
      // A refusal is short, and ends with its connection.
      message.pipe(stream)
      return true
    }
    stream.write(begun)
    far.write(upgrade.head)
    this.#pipe(stream, far)
    this.#pipe(far, stream)
    // A machine that is gone says nothing.
    far.once(
      'close',
      watch(target, () => far.destroy()),
    )
    return true
  }

  /** What the other node said and, if it took the socket, its end of it with what it sent first. */
  #askUpgrade({ request, stream }: Upgrade, target: ProxyTarget) {
    type Answer = { message: IncomingMessage; far: Duplex | null; begun: Buffer }
    return new Promise<Answer>((resolve, reject) => {
      const headers = without(NOT_TUNNELLED, request.rawHeaders)
      const asking = this.#request(request, target, { headers, agent: false })
      const giveUp = (): void => void asking.destroy(new Error('the caller has gone'))
      // Long enough for the other node to start a browser first.
      asking.setTimeout(FORWARD_LIMITS.patienceMs, giveUp)
      limitConnecting(asking, giveUp)
      stream.once('close', giveUp)
      asking.once('close', () => stream.off('close', giveUp))
      asking.on('upgrade', (message, far, begun) => {
        far.setTimeout(0)
        resolve({ message, far, begun })
      })
      asking.on('response', (message) => resolve({ message, far: null, begun: Buffer.alloc(0) }))
      asking.on('error', reject)
      asking.end()
    })
  }

  #pipe(from: Duplex, to: Duplex): void {
    this.#tunnels.add(from)
    from.pipe(to)
    // The close event follows, and ends the other side.
    from.on('error', () => from.destroy())
    from.on('close', () => {
      this.#tunnels.delete(from)
      to.destroy()
    })
  }
}

function limitConnecting(request: ClientRequest, giveUp: () => void): void {
  const timer = setTimeout(giveUp, FORWARD_LIMITS.connectMs)
  const reached = (): void => clearTimeout(timer)
  request.once('close', reached)
  request.once('socket', (socket) => {
    if (socket.connecting) socket.once('connect', reached)
    else reached()
  })
}

/** Calls `dead` if the other node is found dead, until the returned function is called. */
function watch({ isAlive }: ProxyTarget, dead: () => void): () => void {
  const look = setInterval(() => {
    // A store that cannot say is no reason to give up.
    isAlive().then(
      (alive) => (alive ? undefined : dead()),
      () => undefined,
    )
  }, FORWARD_LIMITS.aliveMs)
  return () => clearInterval(look)
}

/** A connection that was made and then fell silent ends with the same codes, while it is read. */
function isUnreached(thrown: unknown): boolean {
  const { code = '', syscall = 'connect' } = thrown as NodeJS.ErrnoException
  return UNREACHED.has(code) && (syscall === 'connect' || syscall === 'getaddrinfo')
}

/** Doing it twice comes to the same. Only turns take an `Idempotency-Key`. */
function isHarmless({ request, operation }: Exchange): boolean {
  const isKeyed = request.headers['idempotency-key'] !== undefined
  return request.method === 'GET' || (operation === 'turn.run' && isKeyed)
}

function without(names: ReadonlySet<string>, rawHeaders: readonly string[]): string[] {
  const passed: string[] = []
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? ''
    if (!names.has(name.toLowerCase())) passed.push(name, rawHeaders[index + 1] ?? '')
  }
  return passed
}

/** Hands the answer over; if it breaks off, so does the caller's. */
async function pass(exchange: Exchange, answer: IncomingMessage): Promise<true> {
  const { statusCode = 502, rawHeaders } = answer
  exchange.beginPassed(statusCode, without(NOT_PASSED_ON, rawHeaders))
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) await exchange.write(chunk)
    exchange.response.end()
  } catch {
    // The caller sees that it is cut off, and follows from where it stood.
    exchange.response.destroy()
  }
  return true
}
