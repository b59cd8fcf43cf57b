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

const PLANTED = {
  /** Appends under whatever epoch and position the log has by now. */
  'no-fence': (store) => {
    const append = store.append.bind(store)
    store.append = async (appends) => {
      const outcomes = await append(appends)
      return Promise.all(
        outcomes.map(async (outcome, index) => {
          if (outcome === 'appended') return outcome
          const claim = await store.claim(appends[index].session, `thief-${process.pid}`)
          const epoch = claim.epoch ?? Number((claim.node ?? '').length)
          const { row } = await store.read(appends[index].session, 0, 0)
          const [forced] = await append([{ ...appends[index], epoch, after: row.seq }])
          return forced
        }),
      )
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
    const { emit } = Server.prototype
    Server.prototype.emit = function emitWithKey(event, ...args) {
      if (event === 'request') args[0].headers['idempotency-key'] ??= `made-up-${(made += 1)}`
      return emit.call(this, event, ...args)
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
process.once('SIGTERM', () => server.close({ drainMs: 2_000 }).then(() => process.exit(0)))
console.log(`listening on ${server.url}`)
