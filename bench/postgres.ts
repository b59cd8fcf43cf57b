/**
 * Turns on PostgreSQL, against a bare loop of the very same statements with nothing around them;
 * and what a turn through the wrong node costs.
 */
import { openHoldfast } from 'holdfast'
import { openPostgresStore } from 'holdfast/postgres'
import { startServer } from 'holdfast/server'
import type { Append } from '../src/core/store.ts'
import { openTestDatabase, type TestDatabase } from '../test/support/postgres.ts'
import { describeLoad, drive, median, percentile, perSecond, type Load } from './measure.ts'

type Verdict = (what: string, value: number, target: string, reached: boolean) => void

const KEYS = 200
const INPUT = 'hello, is anybody there?'
/** As many statements as Holdfast has under way. */
const IN_FLIGHT = 2

export async function benchPostgres(
  seconds: number,
  rounds: number,
  verdict: Verdict,
): Promise<void> {
  const database = await openTestDatabase()
  try {
    console.log(`\nDurable turns on PostgreSQL, ${KEYS} keys, against a bare loop:`)
    const ratio = await againstBare(database, seconds, rounds)
    verdict(`turns on PostgreSQL, ${KEYS} keys, of a bare loop`, ratio, '>= 0.6', ratio >= 0.6)
    console.log('\nA turn over HTTP at its owner, and through another node:')
    const cost = await forwarding(database, seconds)
    verdict('a forwarded turn, of a local one', cost, '<= 1.5', cost <= 1.5)
  } finally {
    await database.close()
  }
}

async function againstBare(database: TestDatabase, seconds: number, rounds: number) {
  const ratios: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    const ours = await holdfastTurns(database.freshUrl(), seconds)
    const limit = await bareTurns(database.freshUrl(), seconds)
    const ratio = perSecond(ours) / perSecond(limit)
    ratios.push(ratio)
    console.log(`  holdfast    ${describeLoad(ours)}`)
    console.log(`  bare loop   ${describeLoad(limit)}      ratio ${ratio.toFixed(2)}`)
  }
  return median(ratios)
}

async function holdfastTurns(store: string, seconds: number): Promise<Load> {
  const holdfast = await openHoldfast({ store })
  const sessions = await Promise.all(
    Array.from({ length: KEYS }, (_, key) => holdfast.resolve({ key: `key-${key}` })),
  )
  const turn = async (caller: number): Promise<unknown> => sessions[caller % KEYS]?.turn(INPUT)
  await drive(KEYS, 1, turn)
  const load = await drive(KEYS, seconds, turn)
  await holdfast.close()
  return load
}

async function bareTurns(url: string, seconds: number): Promise<Load> {
  const store = await openPostgresStore({ url })
  const ids = Array.from({ length: KEYS }, (_, key) => `session-${key}`)
  const plain = { explicit: false, key: null, agent: 'echo', internal: false, labels: {} }
  const made = { node: 'bare', at: 1, expiresAt: null, body: '{"seq":1}' }
  await Promise.all(ids.map((id) => store.reserve({ ...plain, ...made, id })))
  const seqs = new Map(ids.map((id) => [id, 1]))
  const commit = async (group: readonly string[], types: readonly string[]): Promise<void> => {
    const appends = group.map((session): Append => {
      const after = seqs.get(session) ?? 1
      seqs.set(session, after + types.length)
      const events = types.map((type, index) =>
        JSON.stringify({ type, turn: `t${after}`, text: INPUT, seq: after + index + 1, at: 1 }),
      )
      const flags = { snapshot: null, closed: false, pending: types.length === 1, expiresAt: null }
      return { session, epoch: 1, after, events, at: Date.now(), ...flags }
    })
    await store.append(appends)
  }
  const size = KEYS / IN_FLIGHT
  const rounds = await drive(IN_FLIGHT, seconds, async (lane) => {
    const group = ids.slice(lane * size, (lane + 1) * size)
    await commit(group, ['turn.started'])
    await commit(group, ['message.added', 'turn.done'])
  })
  await store.close()
  return { ...rounds, turns: rounds.turns * size }
}

async function forwarding(database: TestDatabase, seconds: number): Promise<number> {
  const store = database.freshUrl()
  const cluster = { secret: 'of the measurement, and of nobody else' }
  const [here, there] = await Promise.all(
    [17_420, 17_421].map(async (port) => {
      const holdfast = await openHoldfast({ store, advertise: `http://127.0.0.1:${port}` })
      return startServer({ holdfast, port, cluster })
    }),
  )
  const turn = (url: string) => async (): Promise<void> => {
    const response = await fetch(`${url}/v1/keys/measured/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: INPUT }),
    })
    if (response.status !== 200) throw new Error(`status ${response.status}`)
    await response.text()
  }
  await drive(1, 1, turn(here!.url))
  await drive(1, 1, turn(there!.url))
  const local = await drive(1, seconds, turn(here!.url))
  const passed = await drive(1, seconds, turn(there!.url))
  console.log(`  at its owner          ${describeLoad(local)}`)
  console.log(`  through another node  ${describeLoad(passed)}`)
  await Promise.all([here!.close(), there!.close()])
  return percentile(passed.latencies, 0.5) / percentile(local.latencies, 0.5)
}
