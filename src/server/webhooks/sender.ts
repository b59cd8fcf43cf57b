/**
 * One POST to the endpoint of a webhook, within bounds: the address that is connected to was
 * checked, no redirect is followed, and of the answer its status counts.
 */
import { request as requestHttp, type IncomingMessage } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isPublicAddress, plainIp, type EgressRule } from '../../platform/egress.ts'
import { pinned, type HostResolver } from '../../platform/resolver.ts'
import { VERSION } from '../../wire/version.ts'

/** What an answer may have that is read at all. */
const ANSWER_BYTES_MAX = 16_384
const HEADER_BYTES_MAX = 16_384
/** A receiver cannot ask for more. */
const RETRY_AFTER_MS_MAX = 3_600_000

export type SendResult = {
  readonly isConfirmed: boolean
  /** Why not: a word that no receiver chooses. */
  readonly reason: 'status' | 'address' | 'name' | 'connection' | 'timeout' | null
  readonly status: number | null
  /** What the receiver has asked for. */
  readonly retryAfterMs: number
}

export type Message = {
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

export type Endpoint = { readonly url: URL; readonly rule: EgressRule }

export type SendContext = {
  readonly resolver: HostResolver
  /** How long all of it may take. */
  readonly sendMs: number
  /** Ends it before. */
  readonly signal: AbortSignal
  /** Milliseconds since 1970, for `Retry-After` as a date. */
  readonly now: () => number
}

/** Never rejects. */
export async function send(
  { url, rule }: Endpoint,
  message: Message,
  { resolver, sendMs, signal: cut, now }: SendContext,
): Promise<SendResult> {
  const signal = AbortSignal.any([AbortSignal.timeout(sendMs), cut])
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80))
  const found = await beforeAbort(resolver.addressesOf(host, rule), signal)
  if (found === null || found.length === 0) return failed(signal.aborted ? 'timeout' : 'name')
  const isPlain = url.protocol === 'http:'
  const reachable = rule
    .reachable(host, port, found)
    // What is not encrypted stays in the networks that the operator allows.
    .filter((address) => !isPlain || !isPublicAddress(plainIp(address)))
  if (reachable.length === 0) return failed('address')
  try {
    const response = await post({ url, host, port, addresses: reachable }, message, signal)
    const { statusCode: status = 0, headers } = response
    await readBounded(response, signal)
    const isConfirmed = status >= 200 && status < 300
    const retryAfterMs = retryAfterOf(headers['retry-after'], now())
    return { isConfirmed, reason: isConfirmed ? null : 'status', status, retryAfterMs }
  } catch {
    // More than this nobody can use: what a receiver says is not printed.
    return failed(signal.aborted ? 'timeout' : 'connection')
  }
}

function failed(reason: SendResult['reason']): SendResult {
  return { isConfirmed: false, reason, status: null, retryAfterMs: 0 }
}

/** Null: it failed, or took too long. */
function beforeAbort<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value | null> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(null), { once: true })
    // Why a name leads nowhere does not matter.
    promise.then(resolve, () => resolve(null))
  })
}

type Target = {
  readonly url: URL
  readonly host: string
  readonly port: number
  readonly addresses: readonly string[]
}

function post(
  { url, host, port, addresses }: Target,
  { body, headers }: Message,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const begin = url.protocol === 'https:' ? requestHttps : requestHttp
  return new Promise((resolve, reject) => {
    const request = begin(
      {
        ...{ host, port, signal, method: 'POST', path: `${url.pathname}${url.search}` },
        // A connection of its own: what is reused was not checked now.
        ...{ agent: false, lookup: pinned(addresses), autoSelectFamily: true },
        maxHeaderSize: HEADER_BYTES_MAX,
        headers: {
          ...headers,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': `holdfast/${VERSION}`,
          host: url.host,
        },
      },
      resolve,
    )
    request.on('error', reject)
    request.end(body)
  })
}

/** So that the receiver can end its answer; what is in it does not matter. */
async function readBounded(response: IncomingMessage, signal: AbortSignal): Promise<void> {
  let bytes = 0
  const chunks = response as AsyncIterable<Uint8Array>
  try {
    for await (const { length } of chunks) {
      bytes += length
      if (bytes > ANSWER_BYTES_MAX || signal.aborted) break
    }
  } catch {
    // The status has been sent, and is what counts.
  } finally {
    response.destroy()
  }
}

/** Seconds, or a date; 0: nothing that is understood. */
export function retryAfterOf(header: string | undefined, now: number): number {
  if (header === undefined) return 0
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - now
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), RETRY_AFTER_MS_MAX) : 0
}
