/**
 * Tickets: for tools that take nothing but a URL. A ticket stands in the query instead of a token,
 * opens one browser session for a few minutes, and is worth nothing afterwards.
 *
 * It holds the token that it was made with, sealed (`sealed.ts`): so it needs no memory here, is
 * good on every node that has the cluster's secret, and ends with its token.
 */
import { randomBytes } from 'node:crypto'
import type { Clock } from '../core/index.ts'
import { openSealed, sealedText } from './sealed.ts'

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
    return { text: sealedText(PREFIX, this.#key, ticket), expiresAt: ticket.expiresAt }
  }

  /** Null: it was not made here, or its time is over. */
  read(text: string): Ticket | null {
    const ticket = openSealed(PREFIX, this.#key, text) as Ticket | null
    return ticket !== null && ticket.expiresAt > this.#clock.now() ? ticket : null
  }
}
