/**
 * Bugs to plant in a node, to show that the checker sees them. Each gets the node's store, and takes
 * one guard of the protocol away.
 */
import { randomUUID } from 'node:crypto'
import { Server } from 'node:http'
import pg from 'pg'
import { Lease } from '../../dist/core/lease.js'

/** One statement beside the store. */
async function ask(url, sql, ...values) {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  try {
    return (await client.query(sql, values)).rows
  } finally {
    await client.end()
  }
}

export const PLANTED = {
  none: () => undefined,

  /** I5: appends under whatever epoch and position the log has by now. */
  'no-fence': (store, { url, schema }) => {
    const append = store.append.bind(store)
    const force = async (one) => {
      const sql = `SELECT owner_epoch AS epoch, seq FROM ${schema}.sessions WHERE id = $1`
      // The owner may be at work: then the position has changed meanwhile.
      for (let attempt = 0; attempt < 20; attempt += 1) {
        const [row] = await ask(url, sql, one.session)
        const forced = { ...one, epoch: Number(row.epoch), after: Number(row.seq) }
        const [outcome] = await append([forced])
        if (outcome === 'appended') return outcome
      }
      return 'stale'
    }
    store.append = async (appends) => {
      const outcomes = await append(appends)
      const forced = outcomes.map((outcome, index) =>
        outcome === 'appended' ? outcome : force(appends[index]),
      )
      return Promise.all(forced)
    }
  },

  /** I5: the statement that appends compares positions, but not epochs. */
  'no-epoch': async (_, { url, schema }) => {
    const guard = 'held.owner_epoch = given.epoch AND '
    const functions = await ask(
      url,
      `SELECT pg_get_functiondef(oid) AS text FROM pg_proc
        WHERE proname LIKE 'append%' AND pronamespace = $1::regnamespace`,
      schema,
    )
    for (const { text } of functions.filter((found) => found.text.includes(guard))) {
      await ask(url, text.replace(guard, '')).catch((error) => {
        // Another node takes it away at the same time.
        if (error.code !== 'XX000') throw error
      })
    }
  },

  /** I5: never looks whether its own lease has ended, nor hears it from a beat. */
  'no-lease': (store) => {
    Object.defineProperty(Lease.prototype, 'held', { get: () => true })
    const beat = store.beat.bind(store)
    store.beat = async (node, leaseMs) => void (await beat(node, leaseMs))
  },

  /** I2: takes what it is asked for, although the owner's lease has not ended. */
  steal: (store, { url, schema }) => {
    // A node that knows the owner forwards the request instead.
    store.cluster.ownerOf = async () => null
    const claim = store.claim.bind(store)
    store.claim = async (session, node) => {
      await ask(url, `UPDATE ${schema}.sessions SET owner = $2 WHERE id = $1`, session, node)
      return claim(session, node)
    }
  },

  /** I11: passes a request on once more although it may have been carried out. */
  'no-doubt': () => {
    // oxlint-disable-next-line typescript/unbound-method -- called with its own `this` below
    const emit = Server.prototype.emit
    Server.prototype.emit = function emitWithKey(event, ...args) {
      if (event === 'request') args[0].headers['idempotency-key'] ??= randomUUID()
      return Reflect.apply(emit, this, [event, ...args])
    }
  },
}
