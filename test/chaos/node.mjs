/**
 * A node for the chaos: `node test/chaos/node.mjs SETTINGS`, which are JSON. It writes down what only
 * a node can know, as lines of JSON: when its agent runs, tick by tick; what became of the agent's
 * questions; and under which epoch it claimed sessions and wrote to them.
 */
import { appendFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openHoldfast, processRunner } from 'holdfast'
import { openPostgresStore } from 'holdfast/postgres'
import { startServer } from 'holdfast/server'
import { PLANTED } from './planted.mjs'

const TICK_MS = 25

const { url, schema, advertise, port, leaseMs, secret, witness, bug } = JSON.parse(process.argv[2])

function write(line) {
  appendFileSync(witness, `${JSON.stringify({ at: Date.now(), ...line })}\n`)
}

/** The input: `NAME MS`, and `ask MS wait|deny` if it has a question and how long that may wait. */
async function ticking({ id, text }, { session, signal, ask }) {
  const [, ms, asks, timeoutMs, onNobody] = text.split(' ')
  const question = { kind: 'permission', question: text, timeoutMs: Number(timeoutMs), onNobody }
  const outcome = asks === undefined ? null : ask(question)
  // Should the turn be over before its question: then nobody waits for it.
  outcome?.catch(() => undefined)
  const until = Date.now() + Number(ms)
  const tick = () => write({ type: 'tick', session: session.id, run: `${process.pid}/${id}` })
  tick()
  while (Date.now() < until && !signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, TICK_MS))
    tick()
  }
  if (outcome !== null) {
    write({ type: 'told', session: session.id, turn: id, outcome: await outcome })
  }
  return text
}

/** Writes down what the authority asked for and got, whatever bug the store has. */
function watchOver(store) {
  const [append, claim] = [store.append.bind(store), store.claim.bind(store)]
  store.append = async (appends) => {
    const outcomes = await append(appends)
    appends.forEach(({ session, epoch, after, events }, index) => {
      if (outcomes[index] !== 'appended') return
      write({ type: 'append', session, epoch, after, count: events.length })
    })
    return outcomes
  }
  store.claim = async (session, node) => {
    const answer = await claim(session, node)
    const { epoch, row } = answer
    if ((epoch ?? null) !== null) write({ type: 'claim', session, epoch, seq: row.seq })
    return answer
  }
}

const store = await openPostgresStore({ url, schema, advertise })
await PLANTED[bug](store, { url, schema })
watchOver(store)
const ticker = fileURLToPath(new URL('ticker.mjs', import.meta.url))
const program = processRunner({
  command: process.execPath,
  args: [ticker, witness],
  folder: join(dirname(witness), `node-${port}`),
})
const holdfast = await openHoldfast({
  store,
  agents: { ticking, program },
  limits: { leaseMs, sweepMs: 500, commitsInFlightMax: 2, commitAppendsMax: 256 },
})
const server = await startServer({ holdfast, port, cluster: { secret } })
process.once('SIGTERM', () => {
  void server.close({ drainMs: 2_000, closeHoldfast: true }).then(() => process.exit(0))
})
console.log(`listening on ${server.url}`)
