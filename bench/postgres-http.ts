/** `holdfast serve` as users start it, several on one PostgreSQL, under a load over HTTP. */
import { Cluster } from '../test/support/server-process.ts'
import type { TestDatabase } from '../test/support/postgres.ts'
import { Child } from './child.ts'
import { sampleOf } from './contenders.ts'
import { CALLERS, type LoadOrder } from './http-load.ts'
import { describeLoad, drive, INPUT, percentile, type Load } from './measure.ts'
import { busyCores, joined, KEYS } from './postgres.ts'

const LEASE_MS = 10_000

export async function httpTurns(database: TestDatabase, nodes: number, seconds: number) {
  const cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
  await Promise.all(Array.from({ length: nodes }, () => cluster.add()))
  const urls = cluster.nodes.map(({ url }) => url)
  const sample = await sampleOf(Number(new URL(urls[0] ?? '').port))
  const ours = await loadOn(urls, seconds)
  await cluster.close()
  const bareUrl = database.freshUrl()
  const servers = urls.map((_, n) => {
    const keys = String(Math.ceil(KEYS / nodes))
    return new Child('bare-postgres-http', [bareUrl, `n${n}`, keys, sample.headers, sample.body])
  })
  const ports = await Promise.all(servers.map((server) => server.next<number>()))
  const limit = await loadOn(
    ports.map((port) => `http://127.0.0.1:${port}`),
    seconds,
  )
  await Promise.all(servers.map((server) => server.stop()))
  return { ours, limit }
}

/** Each node gets its share of the callers and of the keys. */
async function loadOn(urls: readonly string[], seconds: number) {
  const share = (all: number): number => Math.ceil(all / urls.length)
  const clients = urls.map((url) => {
    const port = Number(new URL(url).port)
    const order: LoadOrder = { port, callers: share(CALLERS), keys: share(KEYS), seconds }
    return new Child('load', [JSON.stringify(order)])
  })
  await Promise.all(clients.map((client) => client.next()))
  const busy = busyCores()
  const loads = await Promise.all(clients.map((client) => client.ask<Load>('go')))
  const cores = busy()
  await Promise.all(clients.map((client) => client.stop()))
  const all = joined(loads)
  return { ...all, text: `${all.text}; ${cores}, callers included` }
}

async function postTurn(url: string, key: string): Promise<Response> {
  const response = await fetch(`${url}/v1/keys/${key}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: INPUT }),
  })
  if (response.status !== 200) throw new Error(`status ${response.status}`)
  return response
}

/** The median of a turn through another node, of one at its owner. */
export async function forwarding(database: TestDatabase, seconds: number): Promise<number> {
  console.log('\nA turn over HTTP at its owner, and through another node:')
  const cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
  const here = await cluster.add()
  const there = await cluster.add()
  const turn = (url: string) => async (): Promise<void> => {
    await (await postTurn(url, 'measured')).text()
  }
  await drive(1, 1, turn(here.url))
  await drive(1, 1, turn(there.url))
  const local = await drive(1, seconds, turn(here.url))
  const passed = await drive(1, seconds, turn(there.url))
  console.log(`  at its owner          ${describeLoad(local)}`)
  console.log(`  through another node  ${describeLoad(passed)}`)
  await cluster.close()
  return percentile(passed.latencies, 0.5) / percentile(local.latencies, 0.5)
}
