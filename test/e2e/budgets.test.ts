/** What a principal may use in a day, from outside: on one node, after a restart, on two nodes. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, type Agent, type OpenOptions, type Runner } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'

type Budgets = NonNullable<OpenOptions['budgets']>

/** Tells at once that it has used so many tokens, and ends when it is stopped or told to. */
const using: Runner = {
  async *run({ text }, { signal }) {
    const [tokens, then] = text.split(' ')
    const data = { inputTokens: Number(tokens) - 1, outputTokens: 1, costUsd: 0.5 }
    yield { type: 'activity', kind: 'usage', data }
    if (then === 'forever') await aborted(signal)
    return { text: 'used' }
  },
}
const aborted = (signal: AbortSignal) =>
  new Promise((resolve) => signal.addEventListener('abort', resolve))
const forever: Agent = async (_, { signal }) => void (await aborted(signal))
const agents = { using, forever, ...builtinAgents }

let folder: string
let file: string
const servers: TestServer[] = []

const secretOf = (name: string): string => `hf_secret-of-${name}`

async function start(budgets: Budgets, options: TestServerOptions = {}): Promise<TestServer> {
  const server = await serve({ agents, budgets, tokens: await openTokenFile(file), ...options })
  servers.push(server)
  return server
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-budgets-'))
  file = join(folder, 'tokens.json')
  const tokens = ['bob', 'carol', 'root'].map((name) => {
    const sha256 = createHash('sha256').update(secretOf(name)).digest('hex')
    const scopes = [name === 'root' ? 'admin' : 'talk']
    return { name, principal: name, scopes, sha256 }
  })
  await writeFile(file, JSON.stringify({ version: 3, tokens }), { mode: 0o600 })
})
afterAll(() => rm(folder, { recursive: true }))
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

function send(server: TestServer, name: string, method: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${secretOf(name)}` }
  return server.call(method, path, { headers, ...(body && { body }) })
}

const turn = (server: TestServer, name: string, input: string, more: object = {}) =>
  send(server, name, 'POST', `/v1/keys/${name}/turns`, { input, agent: 'using', ...more })

async function used(server: TestServer, name: string): Promise<any> {
  const { body } = await send(server, name, 'GET', '/v1/me')
  return body.budgets.map(({ budget, used: amount }: any) => [budget, amount])
}

const DAY_MS = 86_400_000
const BUDGETS: Budgets = { default: { tokensPerDay: 100 } }

describe('a budget', () => {
  it('refuses turns once it is used up, until the next day begins, and no others', async () => {
    const told: string[] = []
    const onDiagnostic = ({ code, facts }: any) =>
      void (code === 'budget_reached' && told.push(facts.principal))
    const server = await start(BUDGETS, { onDiagnostic })
    expect((await turn(server, 'bob', '60')).body.turn.state).toBe('done')
    expect(await used(server, 'bob')).toEqual([['tokensPerDay', 60]])
    expect((await turn(server, 'bob', '60')).body.turn.state).toBe('done')
    for (const attempt of [1, 2]) {
      const { status, body, headers } = await turn(server, 'bob', '1')
      const limits = { budget: 'tokensPerDay', limit: 100, used: 120 }
      expect({ attempt, status, body }).toMatchObject({ attempt, status: 429, body: limits })
      expect(body.code).toBe('budget_exceeded')
      const left = DAY_MS - (Date.now() % DAY_MS)
      expect(Math.abs(body.retryAfterMs - left)).toBeLessThan(10_000)
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    }
    expect(told).toEqual(['bob'])
    expect((await turn(server, 'carol', '1')).body.turn.state).toBe('done')
    const metrics = await send(server, 'root', 'GET', '/metrics')
    expect(metrics.text).toContain('holdfast_budget_refusals_total 2')
    const isRecorded = async () => {
      const { body } = await send(server, 'root', 'GET', '/v1/audit')
      return body.records.some(({ code }: any) => code === 'budget_reached')
    }
    await expect.poll(isRecorded, { timeout: 5_000 }).toBe(true)
  })

  it('survives a restart', async () => {
    const store = `sqlite:${join(folder, 'restart.db')}`
    const first = await start(BUDGETS, { store })
    await turn(first, 'bob', '100')
    await servers.pop()?.close()
    const second = await start(BUDGETS, { store })
    expect(await turn(second, 'bob', '1')).toMatchObject({ status: 429 })
  })

  it('ends what runs if that is wanted, and lets it go on if not', async () => {
    const ends = await start({ ...BUDGETS, onExceeded: 'end' })
    const ended = (await turn(ends, 'bob', '100 forever')).body.turn
    expect(ended).toMatchObject({ state: 'failed', error: { code: 'budget_exceeded' } })
    const stays = await start(BUDGETS)
    const { body } = await send(stays, 'bob', 'POST', '/v1/sessions', { agent: 'using' })
    const running = send(stays, 'bob', 'POST', `/v1/sessions/${body.id}/turns`, {
      input: '100 forever',
    })
    await expect.poll(async () => (await used(stays, 'bob'))[0][1]).toBe(100)
    expect((await turn(stays, 'bob', '1')).status).toBe(429)
    const session = await send(stays, 'bob', 'GET', `/v1/sessions/${body.id}`)
    expect(session.body.running).not.toBeNull()
    await send(stays, 'root', 'DELETE', `/v1/sessions/${body.id}`)
    await running
  })

  it('counts cost and time, also while a turn runs', async () => {
    const server = await start({
      principals: { bob: { costUsdPerDay: 0.5 }, carol: { runningMsPerDay: 50 } },
      onExceeded: 'end',
    })
    expect((await turn(server, 'bob', '1')).body.turn.state).toBe('done')
    expect(await turn(server, 'bob', '1')).toMatchObject({ body: { budget: 'costUsdPerDay' } })
    const own = { agent: 'forever' }
    const { body } = await turn(server, 'carol', 'hello', own)
    expect(body.turn).toMatchObject({ state: 'failed', error: { code: 'budget_exceeded' } })
    expect(await turn(server, 'carol', '1', own)).toMatchObject({
      body: { budget: 'runningMsPerDay' },
    })
  })
})

describe('on two nodes of one database', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database.close())

  it('is one budget', async () => {
    const store = database.freshUrl()
    const nodes = [
      await start(BUDGETS, { store, isNode: true }),
      await start(BUDGETS, { store, isNode: true }),
    ] as const
    const body = { agent: 'using' }
    for (const node of nodes) {
      const { body: session } = await send(node, 'bob', 'POST', '/v1/sessions', body)
      const path = `/v1/sessions/${session.id}/turns`
      expect((await send(node, 'bob', 'POST', path, { input: '50' })).status).toBe(200)
    }
    for (const node of nodes) {
      await expect.poll(async () => (await turn(node, 'bob', '1')).status).toBe(429)
      expect((await used(node, 'bob'))[0][1]).toBeGreaterThanOrEqual(100)
    }
  })
})
