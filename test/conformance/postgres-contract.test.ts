/** The PostgreSQL store keeps the contract of `Store`, by one node and by two in turn. */
import { openPostgresStore } from 'holdfast/postgres'
import { storeConformance, type StoreUnderTest } from 'holdfast/testing'
import { afterAll, beforeAll, describe, test } from 'vitest'
import type { Store } from '../../src/core/index.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'

let database: TestDatabase
let url: string

beforeAll(async () => {
  database = await openTestDatabase()
  url = database.freshUrl()
})
afterAll(() => database.close())

const STORES: Readonly<Record<string, () => Promise<StoreUnderTest>>> = {
  postgres: async () => ({ store: await openPostgresStore({ url }), dispose: emptyTables }),
  'postgres through two nodes': async () => {
    const [one, other] = [await openPostgresStore({ url }), await openPostgresStore({ url })]
    return { store: inTurn(one, other), dispose: emptyTables }
  },
}

/** Quicker than a schema of its own for each case. */
async function emptyTables(): Promise<void> {
  const tables = [
    'sessions',
    'events',
    'snapshots',
    'labels',
    'shares',
    'audit',
    'nodes',
    'request_keys',
    'changes',
    'asks',
    'answerers',
    'blobs',
    'loose_blobs',
    'webhooks',
    'spending',
  ]
  const names = tables.map((table) => `${schemaOf(url)}.${table}`)
  // Quicker than TRUNCATE too, which makes new files for all of them.
  await database.query(names.map((name) => `DELETE FROM ${name}`).join(';'))
}

/** One store to the suite: each step is taken by the other of two, each with its connections. */
function inTurn(one: Store, other: Store): Store {
  let steps = 0
  const next = (): Store => ((steps += 1) % 2 === 0 ? one : other)
  return {
    reserve: (reservation) => next().reserve(reservation),
    claim: (session, node) => next().claim(session, node),
    release: (session, epoch) => next().release(session, epoch),
    append: (appends) => next().append(appends),
    findKeys: (session, query) => next().findKeys(session, query),
    read: (...given) => next().read(...given),
    list: (query) => next().list(query),
    listAsks: (query) => next().listAsks(query),
    beat: (node, leaseMs) => next().beat(node, leaseMs),
    erase: (session) => next().erase(session),
    changes: (after, limit) => next().changes(after, limit),
    usage: (principal, quota, most) => next().usage(principal, quota, most),
    putBlobs: (...given) => next().putBlobs(...given),
    dropBlobs: (...given) => next().dropBlobs(...given),
    holdWebhook: (...given) => next().holdWebhook!(...given),
    saveWebhook: (...given) => next().saveWebhook!(...given),
    listWebhooks: () => next().listWebhooks!(),
    spend: (...given) => next().spend!(...given),
    readBlob: (session, digest) => next().readBlob(session, digest),
    close: async () => void (await Promise.all([one.close(), other.close()])),
  }
}

for (const [name, open] of Object.entries(STORES)) {
  describe(name, () => {
    for (const { title, run } of storeConformance(open)) test(title, run)
  })
}
