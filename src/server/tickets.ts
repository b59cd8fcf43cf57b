/**
 * Tickets: for tools that take nothing but a URL. A ticket stands in the query instead of a token,
 * opens one browser session for a few minutes, and is worth nothing afterwards.
 *
 * It holds the token that it was made with, encrypted: so it needs no memory here, is good on every
 * node that has the cluster's secret, and ends with its token. A changed or foreign ticket cannot
 * be read (AES-256-GCM).
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import type { Clock } from '../core/index.ts'

export const TICKET_LIMITS = {
  /** How long a ticket is good, unless its maker says otherwise; and how long at most. */
  defaultMs: 300_000,
  maxMs: 3_600_000,
} as const

export type Ticket = {
  /** The token that it stands for; null where none is needed. */
  readonly token: string | null
  readonly browser: string
  /** The browser session by its key; or, without one, by its id. */
  readonly key?: string
  readonly session?: string
  /** Milliseconds since 1970. */
  readonly expiresAt: number
}

const PREFIX = 'hft_'
const ALGORITHM = 'aes-256-gcm'
const [NONCE_BYTES, TAG_BYTES] = [12, 16]
/** No ticket is larger: a token and a key fit in it. */
const TEXT_CHARS_MAX = 16_384

export class Tickets {
  readonly #key: Buffer
  readonly #clock: Clock

  /** `key`: 32 bytes, the same on all nodes; without it tickets end with this process. */
  constructor(clock: Clock, key: Buffer = randomBytes(32)) {
    this.#key = key
    this.#clock = clock
  }

  make({ lifeMs, ...parts }: Omit<Ticket, 'expiresAt'> & { readonly lifeMs: number }) {
    const ticket: Ticket = { ...parts, expiresAt: this.#clock.now() + lifeMs }
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(ALGORITHM, this.#key, nonce)
    const sealed = [cipher.update(JSON.stringify(ticket)), cipher.final()]
    const bytes = Buffer.concat([nonce, cipher.getAuthTag(), ...sealed])
    return { text: `${PREFIX}${bytes.toString('base64url')}`, expiresAt: ticket.expiresAt }
  }

  /** Null: it was not made here, or its time is over. */
  read(text: string): Ticket | null {
    if (!text.startsWith(PREFIX) || text.length > TEXT_CHARS_MAX) return null
    const bytes = Buffer.from(text.slice(PREFIX.length), 'base64url')
    const [nonce, tag] = [bytes.subarray(0, NONCE_BYTES), bytes.subarray(NONCE_BYTES)]
    if (tag.length < TAG_BYTES) return null
    try {
      const decipher = createDecipheriv(ALGORITHM, this.#key, nonce)
      decipher.setAuthTag(tag.subarray(0, TAG_BYTES))
      const plain = [decipher.update(tag.subarray(TAG_BYTES)), decipher.final()]
      const ticket = JSON.parse(Buffer.concat(plain).toString()) as Ticket
      return ticket.expiresAt > this.#clock.now() ? ticket : null
    } catch {
      // Not made with this key, or changed since.
      return null
    }
  }
}
