/** Quotas and failed attempts on two nodes of one database: each node knows what the other counts. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, type Agent, type QuotaOptions } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemDigest } from '../../src/platform/clock.ts'
import type { Endpoint } from '../support/endpoint.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'
import { Cluster } from '../support/server-process.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

/** Never ends by itself. */
const forever: Agent = (_, { signal }) =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped')))

const QUOTAS: QuotaOptions = {
  principals: {
    rita: { runningTurns: 2 },
    olga: { turnsPerMinute: 4 },
    sam: { sockets: 1 },
  },
}
const NAMES = ['rita', 'olga', 'sam']
const FAILURES = 3
const secretOf = (name: string): string => `hf_secret-of-${name}`

let folder: string
let file: string
let database: TestDatabase
let store: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-counts-'))
  file = join(folder, 'tokens.json')
  const tokens = NAMES.map((name) => ({
    name,
    principal: name,
    scopes: ['talk', 'manage'],
    sha256: createHash('sha256').update(secretOf(name)).digest('hex'),
  }))
  await writeFile(file, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
  database = await openTestDatabase()
  store = database.freshUrl()
})
afterAll(async () => {
  await database.close()
  await rm(folder, { recursive: true })
})

/** Asks for a turn in the session of a key, and does not wait for its end. */
function turn(on: Endpoint, name: string, key: string, agent: string, input: unknown = 'x') {
  const headers = { authorization: `Bearer ${secretOf(name)}`, prefer: 'respond-async' }
  return on.call('POST', `/v1/keys/${key}/turns`, { headers, body: { input, agent } })
}

describe('two nodes', () => {
  let one: TestServer
  let other: TestServer

  beforeAll(async () => {
    const start = async (): Promise<TestServer> => {
      const tokens = await openTokenFile(file)
      const rates = { failuresPerMinute: FAILURES }
      const agents = { ...builtinAgents, forever }
      return serve({ store, isNode: true, agents, tokens, rates, quotas: QUOTAS })
    }
    ;[one, other] = [await start(), await start()]
  })
  afterAll(() => Promise.all([one.close(), other.close()]))

  /** Until this node has learned from the other that there are so many. */
  const learned = (on: TestServer, name: string, count: number): Promise<void> =>
    until(() => on.holdfast.authority.counts.others(name) >= count)

  it('admit as many running turns together as the limit, and more when one ends', async () => {
    const running = [
      await turn(one, 'rita', 'a', 'forever'),
      await turn(one, 'rita', 'b', 'forever'),
    ]
    expect(running.map(({ status }) => status)).toEqual([202, 202])
    await learned(other, systemDigest('runningTurns rita'), 2)
    const refusal = await turn(other, 'rita', 'c', 'echo')
    expect(refusal.body).toMatchObject({ quota: 'runningTurns', limit: 2, used: 2 })
    const headers = { authorization: `Bearer ${secretOf('rita')}` }
    const { session, turn: first } = running[0]!.body
    const ended = `/v1/sessions/${session}/turns/${first.id}`
    expect((await one.call('DELETE', ended, { headers })).status).toBe(200)
    await until(async () => (await turn(other, 'rita', 'c', 'echo')).status === 202)
  })

  it('admit as many turns a minute together as the limit', async () => {
    for (const key of ['a', 'b', 'c']) {
      expect((await turn(one, 'olga', key, 'echo')).status).toBe(202)
    }
    await learned(other, systemDigest('turnsPerMinute olga'), 2.5)
    expect((await turn(other, 'olga', 'd', 'echo')).status).toBe(202)
    const refusal = await turn(other, 'olga', 'e', 'echo')
    expect(refusal.body).toMatchObject({ quota: 'turnsPerMinute', limit: 4 })
    // The first knows of the one there, too.
    await learned(one, systemDigest('turnsPerMinute olga'), 0.9)
    expect((await turn(one, 'olga', 'f', 'echo')).status).toBe(429)
  })

  it('admit as many sockets together as the limit', async () => {
    const auth = { token: secretOf('sam') }
    const first = dial(one.url, { key: 'near', auth })
    await first.frame('welcome')
    await learned(other, systemDigest('sockets sam'), 1)
    const second = dial(other.url, { key: 'far', auth })
    expect(await second.frame('refuse')).toMatchObject({ code: 'quota_exceeded' })
    await second.closed
    await first.cut()
  })

  it('admit as many failed attempts together as one, and store no address', async () => {
    const attempt = async (on: TestServer): Promise<number> => {
      const headers = { authorization: 'Bearer hf_a-guess' }
      return (await on.call('GET', '/v1/sessions', { headers })).status
    }
    for (let n = 0; n < FAILURES; n += 1) expect(await attempt(one)).toBe(401)
    expect(await attempt(one)).toBe(429)
    const known = new Set(
      NAMES.flatMap((name) =>
        ['runningTurns', 'turnsPerMinute', 'sockets'].map((quota) =>
          systemDigest(`${quota} ${name}`),
        ),
      ),
    )
    let name = ''
    await until(async () => {
      const rows = await database.query(`SELECT counts FROM ${schemaOf(store)}.counts`)
      const names = rows.flatMap(({ counts }) => Object.keys(JSON.parse(counts)))
      name = names.find((found) => !known.has(found)) ?? ''
      return name !== ''
    })
    expect(name).toMatch(/^[\w-]{43}$/)
    await learned(other, name, FAILURES - 1)
    expect(await attempt(other)).toBe(429)
    // A good token is good whatever else came from its address.
    expect((await turn(other, 'rita', 'c', 'echo')).status).toBe(202)
  })
})

describe('a node that is killed', () => {
  it('counts until its lease ends, and no longer', async () => {
    const config = join(folder, 'config.json')
    await writeFile(
      config,
      JSON.stringify({ quotas: { principals: { rita: { runningTurns: 1 } } } }),
    )
    const cluster = new Cluster(database.freshUrl(), { leaseMs: 2_000, parent: folder })
    try {
      const flags = ['--tokens', file, '--config', config]
      const [one, other] = [await cluster.add(flags), await cluster.add(flags)]
      const slow = { text: 'x', ms: 600_000 }
      expect((await turn(one, 'rita', 'a', 'slow', slow)).status).toBe(202)
      // Each turn there ends at once: only that of the other node can be one too many.
      const attempt = async (): Promise<number> => (await turn(other, 'rita', 'b', 'echo')).status
      await until(async () => (await attempt()) === 429)
      await one.kill()
      expect(await attempt()).toBe(429)
      await until(async () => (await attempt()) === 202)
    } finally {
      await cluster.close()
    }
  })
})
