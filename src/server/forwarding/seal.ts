/**
 * How nodes know each other: what one passes on carries a seal that only who has the cluster's
 * secret can make, over method, path and the caller's address, and good for a few minutes. It
 * says no more than that the first look (`Host`, `Origin`, rates) was taken elsewhere, and that the
 * request must not be passed on again: a caller's token is checked by every node anew.
 *
 * It is no proof of the body, nor of the other headers: who can change them on their way can read
 * the caller's token there, and needs no seal. That is what TLS is for.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

export const SEAL_HEADER = 'x-holdfast-seal'
/** The caller's own address, for limits only. */
export const CLIENT_HEADER = 'x-holdfast-client'
/** On a refusal to another node: nothing was done, so another may do it. */
export const UNDONE_HEADER = 'x-holdfast-undone'

/** How far the clocks of two nodes may be apart, and how long a seal is good. */
const SEAL_MS = 300_000

type Sealed = {
  readonly method: string
  readonly url: string
  /** The caller's own address: who has one seal cannot pass for many callers. */
  readonly from: string
}

export class Seal {
  readonly #secret: string
  readonly #now: () => number
  readonly #judged = new WeakMap<IncomingMessage, boolean>()

  /** `now`: the same on all nodes, give or take. */
  constructor(secret: string, now: () => number) {
    this.#secret = secret
    this.#now = now
  }

  /** A name that all nodes give the same thing, and nobody else can guess. */
  nameFor(thing: string): string {
    const digest = createHmac('sha256', this.#secret).update(`name\n${thing}`).digest('hex')
    return digest.slice(0, 32).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
  }

  /** 32 bytes that all nodes have, and nobody else. */
  keyFor(purpose: string): Buffer {
    return createHmac('sha256', this.#secret).update(`key\n${purpose}`).digest()
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
    const text = `${at}\n${method}\n${url}\n${from}`
    return createHmac('sha256', this.#secret).update(text).digest()
  }
}
