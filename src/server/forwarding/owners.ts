/**
 * Who owned a session a moment ago, by the beginning of its path: so that not every request through
 * the wrong node asks the database first. Only a hint: who is asked refuses if it is not the owner.
 */
import type { IncomingMessage } from 'node:http'
import { FORWARD_LIMITS } from './limits.ts'

/** One session, by key or id. */
const PLACE = /^\/v1\/(?:keys|sessions)\/[^/?]+/

export class Owners {
  readonly #known = new Map<string, { readonly node: string; readonly at: number }>()

  of(request: IncomingMessage): string | null {
    const known = this.#known.get(placeOf(request))
    if (known === undefined) return null
    return performance.now() - known.at < FORWARD_LIMITS.ownerMs ? known.node : null
  }

  /** Null: it is not there, or not known. */
  learn(request: IncomingMessage, node: string | null): void {
    const place = placeOf(request)
    if (place === '') return
    if (node === null) return void this.#known.delete(place)
    if (this.#known.size >= FORWARD_LIMITS.ownersMax) this.#known.clear()
    this.#known.set(place, { node, at: performance.now() })
  }
}

/** What only reads is mostly answered by any node: no hint for it. */
function placeOf({ method, url = '' }: IncomingMessage): string {
  return method === 'GET' ? '' : (PLACE.exec(url)?.[0] ?? '')
}
