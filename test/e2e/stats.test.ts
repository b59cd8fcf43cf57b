/** What the server has measured: its charts (`/v1/stats`), its nodes, and `/metrics`. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { builtinAgents, type Agent } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { METRICS } from '../../src/server/metric-table.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { serve, type TestServer } from '../support/server.ts'
import { SECRET, WebhookReceiver } from '../support/webhook-receiver.ts'
import { dial } from '../support/wire-client.ts'

const failing: Agent = async () => {
  throw new Error('as it should')
}
const forever: Agent = (_, { signal }) =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve('stopped')))
const spending: Agent = async function* () {
  const data = { inputTokens: 100, cachedTokens: 40, outputTokens: 7, costUsd: 0.5 }
  yield { type: 'activity', kind: 'usage', data }
  return 'spent'
}
const agents = { ...builtinAgents, failing, forever, spending }
const ASYNC = { prefer: 'respond-async' }

let database: TestDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

/** The samples of `/metrics` by their names with labels. */
async function metricsOf(server: TestServer): Promise<Readonly<Record<string, number>>> {
  const { text } = await server.call('GET', '/metrics')
  const found = text.matchAll(/^([^#\n]\S*) (\S+)$/gm)
  return Object.fromEntries(Array.from(found, ([, name = '', value]) => [name, Number(value)]))
}

async function sessionWith(server: TestServer, agent: string): Promise<string> {
  const { body } = await server.call('POST', '/v1/sessions', { body: { agent } })
  return `/v1/sessions/${body.id}`
}

/** One of everything that is measured on a single node. */
async function doOfEverything(server: TestServer): Promise<void> {
  const turn = async (agent: string, headers = {}) => {
    const path = await sessionWith(server, agent)
    const { body } = await server.call('POST', `${path}/turns`, { body: { input: 'hi' }, headers })
    return { path, turn: body.turn?.id as string }
  }
  await turn('echo')
  await turn('failing')
  await turn('spending')
  const stopped = await turn('forever', ASYNC)
  const second = { body: { input: 'after it' }, headers: ASYNC }
  const { body } = await server.call('POST', `${stopped.path}/turns`, second)
  await server.call('DELETE', `${stopped.path}/turns/${stopped.turn}`)
  await until(async () => (await server.call('GET', stopped.path)).body.running === body.turn.id)
  await server.call('DELETE', `${stopped.path}/turns/${body.turn.id}`)
  const asking = await turn('ask', ASYNC)
  const asks = async () => (await server.call('GET', `${asking.path}/asks`)).body.asks
  await until(async () => (await asks()).length > 0)
  const { now } = (await server.call('GET', '/v1/stats')).body
  expect(now).toMatchObject({ running: 1, queued: 0, waiting: 1, asks: 1 })
  const answered = { body: { answer: 'deny' } }
  await server.call('POST', `${asking.path}/asks/${(await asks())[0].id}`, answered)
  await until(async () => (await server.call('GET', asking.path)).body.running === null)
}

describe('the charts of a server', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await serve({ agents })
  })
  afterAll(() => server.close())

  it('say what happened in each minute, and what goes on', async () => {
    await doOfEverything(server)
    const { status, body } = await server.call('GET', '/v1/stats')
    expect(status).toBe(200)
    expect(body.minutes).toHaveLength(60)
    const sum = (read: (minute: any) => number): number =>
      body.minutes.reduce((total: number, minute: any) => total + read(minute), 0)
    expect(sum(({ turns }) => turns.started)).toBe(6)
    expect(sum(({ turns }) => turns.done)).toBe(3)
    expect(sum(({ turns }) => turns.failed)).toBe(1)
    expect(sum(({ turns }) => turns.cancelled)).toBe(2)
    expect(sum(({ asks }) => asks.opened)).toBe(1)
    expect(sum(({ asks }) => asks.settled)).toBe(1)
    const [last] = body.minutes.slice(-1)
    const times = body.minutes.map(({ at }: { at: number }) => at)
    expect(times).toEqual(times.map((_: number, index: number) => last.at - (59 - index) * 60_000))
    expect(last.at).toBeGreaterThan(body.since - 60_000)
    const measured = body.minutes.filter((minute: any) => minute.duration.p50 !== null)
    for (const { duration } of measured) expect(duration.p50).toBeLessThanOrEqual(duration.p99)
    expect(measured.length).toBeGreaterThan(0)
    expect(body.now).toMatchObject({ running: 0, waiting: 0, attachments: 0 })
    expect(body.now.rssBytes).toBeGreaterThan(1e7)
  })

  it('count clients and watchers', async () => {
    const path = await sessionWith(server, 'echo')
    const session = path.split('/').at(-1)
    const driver = dial(server.url, { session })
    const watcher = dial(server.url, { session, role: 'watcher' })
    await Promise.all([driver.frame('welcome'), watcher.frame('welcome')])
    const { now } = (await server.call('GET', '/v1/stats')).body
    expect(now).toMatchObject({ attachments: 1, watchers: 1, sockets: 2 })
    const metrics = await metricsOf(server)
    expect(metrics['holdfast_attachments{state="live"}']).toBe(1)
    expect(metrics['holdfast_watchers']).toBe(1)
    await Promise.all([driver.cut(), watcher.cut()])
  })

  it('are also of a node that is named, and refused for one that is not there', async () => {
    const { node } = server.holdfast.authority
    expect((await server.call('GET', `/v1/stats?node=${node}`)).body.node).toBe(node)
    for (const path of ['/v1/stats', '/v1/browsers']) {
      const refused = await server.call('GET', `${path}?node=none`)
      expect(refused).toMatchObject({ status: 422, body: { code: 'invalid_field', field: 'node' } })
    }
    const { nodes } = (await server.call('GET', '/v1/nodes')).body
    expect(nodes).toEqual([
      expect.objectContaining({ id: node, isSelf: true, leaseUntil: null, forwards: 0 }),
    ])
  })

  it('are for administrators, where there are tokens', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-stats-'))
    const file = join(folder, 'tokens.json')
    const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')
    const tokens = ['admin', 'manage'].map((scope) => {
      return { name: scope, sha256: sha256(`hf_${scope}`), scopes: [scope] }
    })
    await writeFile(file, JSON.stringify({ tokens }), { mode: 0o600 })
    const guarded = await serve({ tokens: await openTokenFile(file) })
    const status = async (path: string, token: string) => {
      const headers = { authorization: `Bearer hf_${token}` }
      return (await guarded.call('GET', path, { headers })).status
    }
    for (const path of ['/v1/stats', '/v1/nodes', '/metrics']) {
      expect([path, await status(path, 'admin')]).toEqual([path, 200])
      expect([path, await status(path, 'manage')]).toEqual([path, 403])
    }
    const headers = { authorization: 'Bearer hf_manage' }
    const { body } = await guarded.call('GET', '/v1/me', { headers })
    expect(body).toMatchObject({ principal: 'default', scopes: ['watch', 'manage'] })
    await guarded.close()
    await rm(folder, { recursive: true })
  })
})

describe('/metrics', () => {
  let server: TestServer
  let other: TestServer
  let receiver: WebhookReceiver
  beforeAll(async () => {
    const store = database.freshUrl()
    receiver = await WebhookReceiver.start()
    const allow = ['127.0.0.1']
    const webhooks = [{ name: 'hook', url: receiver.url, secrets: [SECRET], allow }]
    // The browser is never started.
    const browsers = { chromium: { program: 'chromium' } }
    server = await serve({ store, agents, browsers, webhooks, isNode: true })
    other = await serve({ store, agents, isNode: true })
  })
  afterAll(() => Promise.all([server.close(), other.close(), receiver.close()]))

  it('prints what its table says, nothing else, and something of each', async () => {
    await doOfEverything(server)
    const path = await sessionWith(other, 'echo')
    expect((await server.call('POST', `${path}/turns`, { body: { input: 'far' } })).status).toBe(
      200,
    )
    const { text } = await server.call('GET', '/metrics')
    const types = Array.from(text.matchAll(/^# TYPE (\S+) (\w+)$/gm), ([, ...row]) => row)
    expect(Object.fromEntries(types)).toEqual(
      Object.fromEntries(Object.entries(METRICS).map(([name, { type }]) => [name, type])),
    )
    for (const [name, { type, labels = [] }] of Object.entries(METRICS)) {
      const isHistogram = type === 'histogram'
      const sample = isHistogram ? `${name}_count` : name
      const rows = Array.from(text.matchAll(new RegExp(`^${sample}(\\{.*\\})? `, 'gm')))
      const found = rows.map(([, braced = '']) =>
        Array.from(braced.matchAll(/(\w+)="/g), ([, label]) => label),
      )
      expect([name, found.length > 0]).toEqual([name, true])
      for (const names of found) expect([name, names]).toEqual([name, labels])
    }
  })

  it('has the turns, asks, tokens and cost of each agent', async () => {
    const metrics = await metricsOf(server)
    const duration = 'holdfast_turn_duration_seconds_count'
    expect(metrics[`${duration}{agent="echo",end="done"}`]).toBe(1)
    expect(metrics[`${duration}{agent="failing",end="failed"}`]).toBe(1)
    expect(metrics[`${duration}{agent="forever",end="cancelled"}`]).toBe(2)
    expect(metrics['holdfast_first_output_seconds_count{agent="failing"}']).toBe(0)
    expect(metrics['holdfast_first_output_seconds_count{agent="spending"}']).toBe(1)
    expect(metrics['holdfast_tokens_total{agent="spending",kind="input"}']).toBe(100)
    expect(metrics['holdfast_tokens_total{agent="spending",kind="cached"}']).toBe(40)
    expect(metrics['holdfast_tokens_total{agent="spending",kind="output"}']).toBe(7)
    expect(metrics['holdfast_cost_usd_total{agent="spending"}']).toBe(0.5)
    expect(metrics['holdfast_ask_duration_seconds_count{outcome="answered"}']).toBe(1)
    expect(metrics['holdfast_queue_wait_seconds_count']).toBe(6)
    const waitedLong = metrics['holdfast_queue_wait_seconds_bucket{le="+Inf"}'] ?? 0
    expect(waitedLong).toBe(6)
    expect(metrics['holdfast_forward_duration_seconds_count']).toBeGreaterThan(0)
    expect(metrics['holdfast_commit_appends_sum']).toBe(metrics['holdfast_appends_total'])
    expect(metrics['holdfast_commit_duration_seconds_count']).toBe(
      metrics['holdfast_commits_total'],
    )
  })

  it('counts clients that come back', async () => {
    const session = (await sessionWith(server, 'echo')).split('/').at(-1)
    const first = dial(server.url, { session })
    const { attachment, resume: token } = await first.frame('welcome')
    first.send({ type: 'ready' })
    await first.cut()
    const again = dial(server.url, { session, auth: { resume: { attachment, token } } })
    await again.frame('welcome')
    expect((await metricsOf(server))['holdfast_resume_duration_seconds_count']).toBe(1)
    await again.cut()
  })
})

describe('nodes of one store', () => {
  it('list each other, and answer for each other', async () => {
    const store = database.freshUrl()
    const [one, two] = [await serve({ store, isNode: true }), await serve({ store, isNode: true })]
    const path = await sessionWith(two, 'echo')
    await one.call('POST', `${path}/turns`, { body: { input: 'hi' } })
    const ids = [one, two].map(({ holdfast }) => holdfast.authority.node)
    const { nodes } = (await one.call('GET', '/v1/nodes')).body
    expect(nodes).toMatchObject([
      { id: ids[0], url: one.url, isSelf: true, isAlive: true, sessions: 0, failovers: 0 },
      { id: ids[1], url: two.url, isSelf: false, isAlive: true, sessions: 1, forwards: null },
    ])
    expect(nodes[0].forwards).toBe(1)
    const started = async (server: TestServer, node: string | undefined): Promise<number> => {
      const { body } = await server.call('GET', `/v1/stats?node=${node}`)
      expect(body.node).toBe(node)
      return body.minutes.reduce((sum: number, { turns }: any) => sum + turns.started, 0)
    }
    expect(await started(one, ids[1])).toBe(1)
    expect(await started(two, ids[0])).toBe(0)
    expect((await one.call('GET', '/v1/stats?node=gone')).status).toBe(422)
    const { body: far } = await one.call('GET', `/v1/browsers?node=${ids[1]}`)
    expect(far).toEqual({ node: ids[1], browsers: [] })
    await Promise.all([one.close(), two.close()])
  })
})
