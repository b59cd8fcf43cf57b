/**
 * Failover under load: a node that owns many sessions is killed (`kill -9`) while each has a caller
 * that goes on with turns through the other nodes. Measured is when each is answered again.
 */
import { Cluster, type ServerProcess } from '../test/support/server-process.ts'
import type { TestDatabase } from '../test/support/postgres.ts'
import { median } from './measure.ts'

const SESSIONS = 200
/** How long the load runs before. */
const BEFORE_MS = 2_000

/** Seconds until the last session was served by another node. */
export async function failover(database: TestDatabase, leaseMs: number): Promise<number> {
  console.log(`\nThe owner of ${SESSIONS} sessions is killed under load, a lease is ${leaseMs} ms:`)
  const cluster = new Cluster(database.freshUrl(), { leaseMs })
  const owner = await cluster.add()
  const others = [await cluster.add(), await cluster.add()]
  const keys = Array.from({ length: SESSIONS }, (_, n) => `key-${n}`)
  await Promise.all(keys.map((key) => owner.post('/v1/sessions', { key })))
  let killedAt = Number.POSITIVE_INFINITY
  const times = keys.map((key, n) => callUntilServed(others[n % 2]!, key, () => killedAt))
  await new Promise((resolve) => setTimeout(resolve, BEFORE_MS))
  killedAt = performance.now()
  await owner.kill()
  const seconds = (await Promise.all(times)).map((ms) => ms / 1_000)
  await cluster.close()
  const [first, last] = [Math.min(...seconds), Math.max(...seconds)]
  const texts = [first, median(seconds), last].map((one) => `${one.toFixed(2)} s`)
  console.log(`  the first after ${texts[0]}, the median ${texts[1]}, the last ${texts[2]}`)
  return last
}

/** Milliseconds from the kill to the first answer after it. */
async function callUntilServed(
  node: ServerProcess,
  key: string,
  killedAt: () => number,
): Promise<number> {
  for (let n = 0; ; n += 1) {
    const sentAt = performance.now()
    const headers = { 'idempotency-key': `${key}-${n}` }
    const { status } = await node.post(`/v1/keys/${key}/turns`, { input: `${n}` }, headers)
    const now = performance.now()
    // What was on its way back when the owner died is no proof.
    if (status === 200 && sentAt > killedAt()) return now - killedAt()
    if (status === 200 && now > killedAt() + 1_000) return now - killedAt()
    if (status !== 200) await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
