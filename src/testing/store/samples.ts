/**
 * Reservations and appends to try a store with: ordinary ones, of which a case changes what it is
 * about.
 */
import assert from 'node:assert/strict'
import type { Append, Claim, Reservation, Reserved, Store } from '../../core/store.ts'

/** What a store does, as a sentence, and the check of it on an empty store. */
export type Claims = Readonly<Record<string, (store: Store) => Promise<void>>>

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

export function sampleReservation(changes: Partial<Reservation> = {}): Reservation {
  return {
    id: freshId(),
    explicit: false,
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

/** Creates a session and returns its id. */
export async function create(store: Store, changes: Partial<Reservation> = {}): Promise<string> {
  const reserved = await store.reserve(sampleReservation(changes))
  assert.equal(reserved.type, 'created')
  return reserved.id
}

/** Creates a session and closes it with its second event. */
export async function createClosed(
  store: Store,
  changes: Partial<Reservation> = {},
): Promise<string> {
  const id = await create(store, changes)
  assert.deepEqual(await store.append([sampleAppend(id, { closed: true })]), ['appended'])
  return id
}

export function assertCreated(
  reserved: Reserved,
): asserts reserved is Reserved & { type: 'created' } {
  assert.equal(reserved.type, 'created')
}

export function assertClaimed(claim: Claim): asserts claim is Claim & { type: 'claimed' } {
  assert.equal(claim.type, 'claimed')
}

export async function idsOf(page: ReturnType<Store['list']>): Promise<readonly string[]> {
  return (await page).sessions.map(({ id }) => id)
}

/** The seqs and bodies of a log of `bodyOf` events from `first` to `last`. */
export function eventsFrom(first: number, last: number): readonly { seq: number; body: string }[] {
  const seqs = Array.from({ length: last - first + 1 }, (_, index) => first + index)
  return seqs.map((seq) => ({ seq, body: bodyOf(seq) }))
}
