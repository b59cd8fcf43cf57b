/**
 * A node for the chaos: `node test/chaos/node.mjs SETTINGS`, which are JSON. Its only agent writes
 * down when it runs, tick by tick, so that two runs of one session at a time are seen. A bug can be
 * planted, to show that the checker sees it.
 */
import { appendFileSync } from 'node:fs'
import { Server } from 'node:http'
import { openHoldfast } from 'holdfast'
import { openPostgresStore } from 'holdfast/postgres'
import { startServer } from 'holdfast/server'
import pg from 'pg'

const TICK_MS = 25

const { url, advertise, port, leaseMs, secret, ticks, bug } = JSON.parse(process.argv[2])

/** The input says how long it takes: `LETTERS MS`. */
async function ticking({ id, text }, { session, signal }) {
  const until = Date.now() + Number(text.split(' ')[1])
  const say = () => appendFileSync(ticks, `${Date.now()} ${session.id} ${process.pid}/${id}\n`)
  say()
  while (Date.now() < until && !signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, TICK_MS))
    say()
  }
  return text
}

async function ask(sql, ...values) {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  try {
    return (await client.query(sql, values)).rows
  } finally {
    await client.end()
  }
}

const PLANTED = {
  /** Appends under whatever epoch and position the log has by now. */
  'no-fence': (store) => {
    const append = store.append.bind(store)
    const force = async (one) => {
      const [row] = await ask('SELECT epoch, seq FROM holdfast.sessions WHERE id = $1', one.session)
      return append([{ ...one, epoch: Number(row.epoch), after: Number(row.seq) }])
    }
    store.append = async (appends) => {
      const outcomes = await append(appends)
      const forced = outcomes.map((outcome, index) =>
        outcome === 'appended' ? [outcome] : force(appends[index]),
      )
      return (await Promise.all(forced)).flat()
    }
  },
  /** Believes that it has its lease although nobody heard its beats. */
  'no-lease': (store) => {
    const beat = store.beat.bind(store)
    store.beat = (node, ms) => beat(node, ms).catch(() => undefined)
  },
  /** Sends a request elsewhere although it may have been carried out. */
  'no-doubt': () => {
    let made = 0
    // oxlint-disable-next-line typescript/unbound-method -- called with its own `this` below
    const emit = Server.prototype.emit
    Server.prototype.emit = function emitWithKey(event, ...args) {
      if (event === 'request') args[0].headers['idempotency-key'] ??= `made-up-${(made += 1)}`
      return Reflect.apply(emit, this, [event, ...args])
    }
  },
}

const store = await openPostgresStore({ url, advertise })
PLANTED[bug]?.(store)
const holdfast = await openHoldfast({
  store,
  agents: { ticking },
  limits: { leaseMs, sweepMs: 500, commitsInFlightMax: 2, commitAppendsMax: 256 },
})
const server = await startServer({ holdfast, port, cluster: { secret } })
process.once('SIGTERM', () => {
  void server.close({ drainMs: 2_000 }).then(() => process.exit(0))
})
console.log(`listening on ${server.url}`)
