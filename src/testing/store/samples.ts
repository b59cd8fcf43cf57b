/**
 * Reservations and appends to try a store with: ordinary ones, of which a case changes what it is
 * about.
 */
import assert from 'node:assert/strict'
import type { Append, ListQuery, Reservation, Store, StoredEvent } from '../../core/store.ts'

/** What a store does, as a sentence, and the check of it on an empty store. */
export type Claims = Readonly<Record<string, (trial: StoreTrial, store: Store) => Promise<void>>>

export const NODE = 'node-a'
export const OTHER_NODE = 'node-b'

let made = 0

/** An id that no other case uses. */
export function freshId(): string {
  made += 1
  return `session-${made}`
}

export function bodyOf(seq: number, text = 'hello'): string {
  return JSON.stringify({ seq, text })
}

/** The seqs and bodies of a log of `bodyOf` events from `first` to `last`. */
export function eventsFrom(first: number, last: number): readonly StoredEvent[] {
  const seqs = Array.from({ length: last - first + 1 }, (_, index) => first + index)
  return seqs.map((seq) => ({ seq, body: bodyOf(seq) }))
}

export function bodiesFrom(first: number, last: number): readonly string[] {
  return eventsFrom(first, last).map(({ body }) => body)
}

export function sampleReservation(changes: Partial<Reservation> = {}): Reservation {
  return {
    id: freshId(),
    explicit: false,
    principal: 'default',
    key: null,
    agent: 'echo',
    internal: false,
    labels: {},
    node: NODE,
    at: 1_000,
    expiresAt: null,
    body: bodyOf(1),
    ...changes,
  }
}

/** One event after `session.created`, under the first epoch. */
export function sampleAppend(session: string, changes: Partial<Append> = {}): Append {
  return {
    session,
    epoch: 1,
    after: 1,
    events: [bodyOf((changes.after ?? 1) + 1)],
    snapshot: null,
    at: 2_000,
    closed: false,
    pending: false,
    expiresAt: null,
    ...changes,
  }
}

/** A store, and what cases ask of it again and again. */
export class StoreTrial {
  readonly store: Store

  constructor(store: Store) {
    this.store = store
  }

  reserve(changes?: Partial<Reservation>) {
    return this.store.reserve(sampleReservation(changes))
  }

  /** Reserves that many times at once. */
  race(count: number, changes?: Partial<Reservation>) {
    return Promise.all(Array.from({ length: count }, () => this.reserve(changes)))
  }

  async create(changes?: Partial<Reservation>): Promise<string> {
    const { type, id } = await this.reserve(changes)
    assert.equal(type, 'created')
    return id
  }

  /** One after the other. */
  async createMany(count: number, changes?: Partial<Reservation>): Promise<readonly string[]> {
    const ids: string[] = []
    while (ids.length < count) ids.push(await this.create(changes))
    return ids
  }

  /** Creates a session and closes it with its second event. */
  async createClosed(changes?: Partial<Reservation>): Promise<string> {
    const id = await this.create(changes)
    assert.equal(await this.append(id, { closed: true }), 'appended')
    return id
  }

  async append(session: string, changes?: Partial<Append>) {
    const [outcome, ...others] = await this.store.append([sampleAppend(session, changes)])
    assert.ok(outcome !== undefined && others.length === 0)
    return outcome
  }

  /** A claim that succeeds. */
  async claim(session: string, node = NODE) {
    const claim = await this.store.claim(session, node)
    assert.ok(claim.type === 'claimed', `the claim is ${claim.type}`)
    return claim
  }

  async list(query: Partial<ListQuery> = {}): Promise<readonly string[]> {
    return (await this.store.list({ limit: 9, ...query })).sessions.map(({ id }) => id)
  }

  async events(session: string, after = 0): Promise<readonly StoredEvent[]> {
    return (await this.store.read(session, after, 200)).events
  }
}
