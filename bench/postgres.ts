/**
 * Turns on PostgreSQL with 1, 2 and 4 nodes, against as many bare loops of the very same
 * statements; what a turn through the wrong node costs; how long a failover takes; what a turn
 * leaves on disk and a session in memory.
 */
import { availableParallelism, cpus } from 'node:os'
import { openTestDatabase, type TestDatabase } from '../test/support/postgres.ts'
import { Child } from './child.ts'
import { count, describeLoad, perSecond, type Load } from './measure.ts'
import { failover } from './postgres-failover.ts'
import { forwarding, httpTurns } from './postgres-http.ts'
import { sizes } from './postgres-size.ts'
import type { Results } from './results.ts'

export type PostgresBench = {
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
  readonly leaseMs: number
}

/** What one of several processes has done. */
export type Share = {
  readonly turns: number
  readonly seconds: number
  readonly p50: number
  readonly p99: number
  readonly cpuMicros: number
}

export const NODES = [1, 2, 4] as const
/** Sessions, and callers in process, of all nodes together. */
export const KEYS = 200
const CORES = availableParallelism()

export async function benchPostgres(bench: PostgresBench, part?: string): Promise<void> {
  const { results } = bench
  const wanted = (name: string): boolean => part === undefined || part === name
  const database = await openTestDatabase()
  try {
    if (wanted('turns')) await benchTurns(database, bench)
    if (wanted('nodes-http')) await benchHttp(database, bench)
    if (wanted('forwarding')) {
      const cost = await forwarding(database, bench.seconds)
      results.judge('a forwarded turn, of a local one', cost, { most: 1.3 })
    }
    if (wanted('failover')) {
      const seconds = await failover(database, bench.leaseMs)
      const most = bench.leaseMs / 1_000 + 2
      results.judge('failover of the last session, s', seconds, { most })
    }
    if (wanted('size')) await sizes(database)
  } finally {
    await database.close()
  }
}

async function benchTurns(database: TestDatabase, { seconds, rounds, results }: PostgresBench) {
  for (const nodes of NODES) {
    console.log(`\n${title(nodes)}, ${KEYS} keys, in process, against as many bare loops:`)
    const ratios: number[] = []
    for (let round = 0; round < rounds; round += 1) {
      const ours = await together('holdfast', database.freshUrl(), nodes, seconds)
      const limit = await together('bare', database.freshUrl(), nodes, seconds)
      const ratio = ours.perSecond / limit.perSecond
      ratios.push(ratio)
      console.log(`  holdfast    ${ours.text}`)
      console.log(`  bare loops  ${limit.text}      ratio ${ratio.toFixed(2)}`)
    }
    results.judge(`PostgreSQL, turns of ${nodes} node(s), of bare loops`, ratios, { least: 0.8 })
  }
}

async function benchHttp(database: TestDatabase, { seconds, rounds, results }: PostgresBench) {
  for (const nodes of NODES) {
    console.log(`\n${title(nodes)}, ${KEYS} keys, over HTTP, against as many bare servers:`)
    const ratios: number[] = []
    for (let round = 0; round < rounds; round += 1) {
      const { ours, limit } = await httpTurns(database, nodes, seconds)
      const ratio = ours.perSecond / limit.perSecond
      ratios.push(ratio)
      console.log(`  holdfast serve  ${ours.text}`)
      console.log(`  bare servers    ${limit.text}      ratio ${ratio.toFixed(2)}`)
    }
    results.judge(`PostgreSQL, HTTP turns of ${nodes} node(s), of bare servers`, ratios, {
      least: 0.6,
    })
  }
}

/** More processes than cores share them: then more nodes cannot do more here, nor can bare loops. */
function title(nodes: number): string {
  const shared = nodes + 1 > CORES ? ` (they and the database share ${CORES} cores)` : ''
  return `Durable turns on one PostgreSQL, ${nodes} node(s)${shared}`
}

async function together(mode: 'holdfast' | 'bare', url: string, nodes: number, seconds: number) {
  const children = Array.from(
    { length: nodes },
    (_, n) => new Child('postgres-node', [mode, url, `n${n}`, String(KEYS / nodes)]),
  )
  await Promise.all(children.map((child) => child.next()))
  const busy = busyCores()
  const shares = await Promise.all(children.map((child) => child.ask<Share>(seconds)))
  const cores = busy()
  await Promise.all(children.map((child) => child.stop()))
  const sum = (of: (share: Share) => number): number =>
    shares.reduce((total, share) => total + of(share), 0)
  const turns = sum(({ turns: some }) => some)
  const rate = turns / Math.max(...shares.map((share) => share.seconds))
  const p99 = Math.max(...shares.map((share) => share.p99)).toFixed(1)
  const own = (sum(({ cpuMicros }) => cpuMicros) / turns).toFixed(0)
  const text = `${count(rate)}/s, p99 ${p99} ms; ${own} µs of its own CPU a turn, ${cores}`
  return { perSecond: rate, text }
}

/** How many cores were at work since then, the database's and the callers' too. */
export function busyCores(): () => string {
  const read = (): { idle: number; all: number } => {
    const times = cpus().map(({ times: one }) => one)
    const idle = times.reduce((total, one) => total + one.idle, 0)
    const all = times.reduce((total, one) => total + Object.values(one).reduce((a, b) => a + b), 0)
    return { idle, all }
  }
  const before = read()
  return () => {
    const after = read()
    const share = 1 - (after.idle - before.idle) / (after.all - before.all)
    return `${(share * CORES).toFixed(1)} of ${CORES} cores busy`
  }
}

/** Loads that ran at the same time, as one. */
export function joined(loads: readonly Load[]): { perSecond: number; text: string } {
  const latencies = loads.flatMap((load) => load.latencies).toSorted((a, b) => a - b)
  const seconds = Math.max(...loads.map((load) => load.seconds))
  const all: Load = { turns: latencies.length, seconds, latencies }
  return { perSecond: perSecond(all), text: describeLoad(all) }
}
