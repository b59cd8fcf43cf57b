/**
 * One request on its way to another node and back. Bodies and streams pass as they come.
 *
 * I11: what was surely not delivered, or was refused because nothing was done, may be tried again;
 * what may have been carried out may not, unless trying again is harmless.
 */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { HoldfastError } from '../../core/index.ts'
import type { Exchange } from '../../doors/exchange.ts'
import { FORWARD_LIMITS } from './limits.ts'
import { CLIENT_HEADER, SEAL_HEADER, UNDONE_HEADER, type Seal } from './seal.ts'

/** Between nodes only: removed from requests of clients and from answers to them. */
export const BETWEEN_NODES = [SEAL_HEADER, CLIENT_HEADER, UNDONE_HEADER]

/** Headers of one connection only. The length is set again. */
const NOT_PASSED_ON: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'content-length',
  ...BETWEEN_NODES,
])

/** Whether a refusal says that nothing was done, and another node, or this one, may do it. */
export function isUndone(code: string, details: Readonly<Record<string, unknown>>): boolean {
  return code === 'not_owner' || (code === 'draining' && details['stopped'] !== true)
}

/** Why a connection was never made. */
const UNREACHED: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
])

/** The node that a request goes to. */
export type ProxyTarget = {
  readonly to: string
  /** The client's address. */
  readonly from: string
  /** Whether that node is alive. */
  readonly isAlive: () => Promise<boolean>
}

export type ForwardedRequest = ProxyTarget & { readonly exchange: Exchange }

export class RequestForwarder {
  readonly #seal: Seal
  readonly #http = new HttpAgent(agentOptions)
  readonly #https = new HttpsAgent(agentOptions)

  constructor(seal: Seal) {
    this.#seal = seal
  }

  close(): void {
    this.#http.destroy()
    this.#https.destroy()
  }

  /** True if the caller has its answer; false if nothing was done and it may be tried again. */
  async send(forwarded: ForwardedRequest): Promise<boolean> {
    const { exchange } = forwarded
    // Nothing was sent yet: an error in the body is the client's, and refused as such.
    const body = await exchange.body()
    let answer: IncomingMessage
    try {
      answer = await this.#ask(forwarded, body)
    } catch (thrown) {
      if (exchange.response.destroyed) return true
      if (isUnreached(thrown) || isHarmless(exchange)) return false
      throw new HoldfastError(
        'owner_unreachable',
        'the node that owns the session did not answer: whether the request was carried out is ' +
          'not known',
      )
    }
    if (answer.headers[UNDONE_HEADER] === undefined) return pass(exchange, answer)
    answer.resume()
    return false
  }

  #ask(forwarded: ForwardedRequest, body: Buffer): Promise<IncomingMessage> {
    const { exchange, isAlive } = forwarded
    return new Promise((resolve, reject) => {
      const request = this.#request(forwarded, body.length)
      const stop = watchOver(request, exchange, isAlive)
      request.on('response', (answer) => {
        answer.once('close', stop)
        resolve(answer)
      })
      request.on('error', (error) => {
        stop()
        reject(error)
      })
      request.end(body)
    })
  }

  #request({ exchange, ...target }: ForwardedRequest, length: number): ClientRequest {
    const { request } = exchange
    const headers = passedOn(request.rawHeaders)
    if (length > 0) headers.push('Content-Length', String(length))
    const agent = target.to.startsWith('https:') ? this.#https : this.#http
    return requestTo(this.#seal, target, { request, headers, agent })
  }
}

/** The same request to another node, with these headers and the seal. */
export function requestTo(
  seal: Seal,
  { to, from }: Pick<ProxyTarget, 'to' | 'from'>,
  {
    request: { method = '', url = '' },
    headers,
    agent,
  }: { request: IncomingMessage; headers: readonly string[]; agent: HttpAgent | false },
): ClientRequest {
  const { protocol, hostname, port, pathname } = new URL(to)
  const path = pathname.replace(/\/$/, '') + url
  const sealed = [SEAL_HEADER, seal.make({ method, url: path, from }), CLIENT_HEADER, from]
  const address = { hostname: hostname.replaceAll(/[[\]]/g, ''), port, method, path }
  // As a list, so that Node adds no Host of its own.
  const all = [...headers, ...sealed] as unknown as Record<string, string>
  const options = { ...address, headers: all, agent }
  return protocol === 'https:' ? httpsRequest(options) : httpRequest(options)
}

const agentOptions = { keepAlive: true, maxFreeSockets: FORWARD_LIMITS.idleSocketsMax }

/** Aborts the request when its client is gone, or the other node cannot be reached or is dead. */
function watchOver(
  request: ClientRequest,
  { response }: Exchange,
  isAlive: () => Promise<boolean>,
): () => void {
  const giveUp = (code: string): void => {
    request.destroy(Object.assign(new Error(code), { code }))
  }
  const callerLeft = (): void => giveUp('ECANCELED')
  response.once('close', callerLeft)
  const unreached = setTimeout(() => giveUp('ETIMEDOUT'), FORWARD_LIMITS.connectMs)
  request.once('socket', (socket) => {
    if (!socket.connecting) return clearTimeout(unreached)
    socket.once('connect', () => clearTimeout(unreached))
  })
  const look = setInterval(() => {
    const dead = (alive: boolean): void => (alive ? undefined : giveUp('EOWNERLOST'))
    // A store that cannot say is no reason to give up.
    isAlive().then(dead, () => undefined)
  }, FORWARD_LIMITS.aliveMs)
  return () => {
    clearTimeout(unreached)
    clearInterval(look)
    response.off('close', callerLeft)
  }
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

function passedOn(rawHeaders: readonly string[]): string[] {
  return without(NOT_PASSED_ON, rawHeaders)
}

/** Headers as they came, without some. */
export function without(names: ReadonlySet<string>, rawHeaders: readonly string[]): string[] {
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
  exchange.beginPassed(statusCode, passedOn(rawHeaders))
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) await exchange.write(chunk)
    exchange.response.end()
  } catch {
    // The caller sees that it is cut off, and follows from where it stood.
    exchange.response.destroy()
  }
  return true
}
