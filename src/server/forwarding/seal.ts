/**
 * The seal on a request that another node has forwarded: an HMAC with the cluster's secret over
 * method, path and the client's address, valid for a few minutes. It proves that the first checks
 * (`Host`, `Origin`, rates) were made on another node, and that the request must not be forwarded
 * again. The client's token is checked on every node.
 *
 * It does not cover the body or the other headers: an attacker that can change them between two
 * nodes can read the client's token there, and needs no seal. TLS prevents that.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

export const SEAL_HEADER = 'x-holdfast-seal'
/** The caller's own address, for limits only. */
export const CLIENT_HEADER = 'x-holdfast-client'
/** On a refusal to another node: nothing was done, so another may do it. */
export const UNDONE_HEADER = 'x-holdfast-undone'

/** How far the clocks of two nodes may be apart, and how long a seal is valid. */
const SEAL_MS = 300_000

/** `from`: the client's own address: a seal for one client cannot be used for another. */
type Sealed = { readonly method: string; readonly url: string; readonly from: string }

export class Seal {
  readonly #secret: string
  readonly #now: () => number
  readonly #judged = new WeakMap<IncomingMessage, boolean>()

  /** `now`: the same on all nodes, give or take. */
  constructor(secret: string, now: () => number) {
    this.#secret = secret
    this.#now = now
  }

  /** A name that is the same on all nodes, and that no client can guess. */
  nameFor(thing: string): string {
    const digest = this.#hmac(`name\n${thing}`).toString('hex', 0, 16)
    return digest.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
  }

  /** 32 bytes that are the same on all nodes, and secret. */
  keyFor(purpose: string): Buffer {
    return this.#hmac(`key\n${purpose}`)
  }

  make(request: Sealed): string {
    const at = this.#now().toString(36)
    return `${at}.${this.#digest(at, request).toString('base64url')}`
  }

  /** Whether a node of this cluster has passed this request on. */
  isOn(request: IncomingMessage): boolean {
    const judged = this.#judged.get(request) ?? this.#judge(request)
    this.#judged.set(request, judged)
    return judged
  }

  #judge({ method = '', url = '', headers }: IncomingMessage): boolean {
    const text = headers[SEAL_HEADER]
    if (typeof text !== 'string') return false
    const [at = '', digest = ''] = text.split('.')
    const shown = Buffer.from(digest, 'base64url')
    const expected = this.#digest(at, { method, url, from: String(headers[CLIENT_HEADER]) })
    if (shown.length !== expected.length || !timingSafeEqual(shown, expected)) return false
    return Math.abs(this.#now() - Number.parseInt(at, 36)) <= SEAL_MS
  }

  #digest(at: string, { method, url, from }: Sealed): Buffer {
    return this.#hmac(`${at}\n${method}\n${url}\n${from}`)
  }

  #hmac(text: string): Buffer {
    return createHmac('sha256', this.#secret).update(text).digest()
  }
}
