/**
 * A node's lease on a real PostgreSQL: judged by the database's clock whatever the nodes' own say,
 * and given up by a node that cannot prove it, before it ends (I5).
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { Link } from '../chaos/link.ts'
import { until } from '../support/gate.ts'
import { Cluster, ServerProcess } from '../support/server-process.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'
import { isAlive } from '../support/processes.ts'

const LEASE_MS = 4_000
/** A fifth of it is the time to stop in, also on a busy machine. */
const LONG_LEASE_MS = 10_000
const HOUR_MS = 3_600_000
const ASYNC = { prefer: 'respond-async' }

let database: TestDatabase
let cluster: Cluster
let folder: string

beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-lease-'))
  cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
})
afterEach(async () => {
  await cluster.close()
  rmSync(folder, { recursive: true })
})

/** Node's flag for a process in which it is this much later, or earlier. */
function clockOffBy(ms: number): string[] {
  const file = join(folder, `clock-${ms}.mjs`)
  writeFileSync(
    file,
    `const Real = Date
    globalThis.Date = class extends Real {
      constructor(...given) {
        if (given.length === 0) super(Real.now() + ${ms})
        else super(...given)
      }
      static now() { return Real.now() + ${ms} }
    }`,
  )
  return ['--import', file]
}

/** A node whose agents are written in this module. */
function addWithAgents(agents: string): Promise<ServerProcess> {
  const file = join(folder, `config-${cluster.nodes.length}.mjs`)
  writeFileSync(file, `export default { agents: { ${agents} } }`)
  return cluster.add(['--config', file])
}

async function sessionOn(node: ServerProcess, options: object = {}): Promise<string> {
  const { status, body } = await node.post('/v1/sessions', options)
  expect(status).toBe(201)
  return body.id as string
}

async function eventsOf(node: ServerProcess, session: string): Promise<any[]> {
  const { body } = await node.get(`/v1/sessions/${session}/events`)
  return body.events as any[]
}

async function metric(node: ServerProcess, name: string): Promise<number> {
  const { body } = await node.get('/metrics')
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(body as string)?.[1] ?? Number.NaN)
}

/** What is left of a node's lease, as the database sees it; null if the node is not known. */
async function leaseLeft({ url }: ServerProcess): Promise<number | null> {
  const [row] = await database.query(
    `SELECT extract(epoch FROM lease_ends - clock_timestamp())::float8 AS left
      FROM ${schemaOf(cluster.store)}.nodes WHERE url = '${url}'`,
  )
  return (row?.left as number | undefined) ?? null
}

it.each([
  [[], 7_000],
  [['--lease-ms', '8000'], 8_000],
])('a node with %j has the lease of its flag, or of its configuration', async (flags, leaseMs) => {
  const file = join(folder, 'config.json')
  writeFileSync(file, JSON.stringify({ limits: { leaseMs: 7_000 } }))
  const own = ['--config', file, '--json-log', ...flags]
  const node = await ServerProcess.start({ data: cluster.store, flags: own })
  const lines = node.output.map((line) => JSON.parse(line) as object)
  await node.kill()
  expect(lines).toContainEqual(expect.objectContaining({ code: 'lease_taken', leaseMs }))
})

describe('nodes whose clocks are wrong by an hour', () => {
  it('have the same time as the others: leases, passing on, records and lifetimes', async () => {
    const fast = await cluster.add([], { nodeFlags: clockOffBy(HOUR_MS) })
    const slow = await cluster.add([], { nodeFlags: clockOffBy(-HOUR_MS) })
    const right = await cluster.add()
    const nodes = [fast, slow, right]
    for (const node of nodes) {
      expect(await leaseLeft(node)).toBeGreaterThan(0)
      expect(await leaseLeft(node)).toBeLessThanOrEqual(LEASE_MS / 1_000)
      const id = await sessionOn(node, { ttlMs: 600_000 })
      for (const other of nodes) {
        const { status } = await other.post(`/v1/sessions/${id}/turns`, { input: 'hello' })
        expect(status).toBe(200)
      }
      const log = await eventsOf(node, id)
      for (const { at } of log) expect(Math.abs(Date.now() - at)).toBeLessThan(60_000)
      expect(await metric(node, 'holdfast_sessions_owned')).toBe(1)
    }
    for (const node of nodes) {
      expect(await metric(node, 'holdfast_forwards_total\\{outcome="passed_on"\\}')).toBe(2)
      expect(await metric(node, 'holdfast_leases_lost_total')).toBe(0)
    }
  })

  it('neither take over too early nor close what has time left', async () => {
    const right = await cluster.add()
    const fast = await cluster.add([], { nodeFlags: clockOffBy(HOUR_MS) })
    const busy = await sessionOn(right, { agent: 'slow' })
    const input = { text: 'lost words', ms: 60_000 }
    await right.post(`/v1/sessions/${busy}/turns`, { input }, ASYNC)
    const brief = await sessionOn(right, { ttlMs: LEASE_MS })
    const idle = await sessionOn(right, { ttlMs: 600_000 })
    right.pause()
    // Its sweep finds what the other left only when the database says that the lease is over.
    await until(async () => {
      const taken = await metric(fast, 'holdfast_sessions_taken_over_total')
      if (taken > 0) expect(await leaseLeft(right)).toBeLessThanOrEqual(0)
      return taken > 0
    })
    // A sweep looks at the newest first: when it has closed this one, it has spared the other.
    await until(async () => (await fast.get(`/v1/sessions/${brief}`)).body.state === 'closed')
    const { status, body } = await fast.post(`/v1/sessions/${idle}/turns`, { input: 'hello' })
    expect({ status, body }).toMatchObject({ status: 200, body: { turn: { state: 'done' } } })
    const last = (await eventsOf(fast, busy)).at(-1)
    expect(last).toMatchObject({ type: 'turn.interrupted', reason: 'node_lost' })
    right.resume()
  })
})

describe('a node whose event loop is blocked longer than its lease', () => {
  const BLOCK = `block: async ({ text }) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(text))
    return 'stale words'
  }`

  it('has lost everything when it goes on, and answers nothing from memory', async () => {
    const one = await addWithAgents(BLOCK)
    const two = await addWithAgents(BLOCK)
    const blocked = await sessionOn(one, { agent: 'block' })
    const other = await sessionOn(one, { agent: 'echo' })
    const path = `/v1/sessions/${other}`
    await one.post(`${path}/turns`, { input: 'before' })
    const asked = one.post(
      `/v1/sessions/${blocked}/turns`,
      { input: String(LEASE_MS + 2_000) },
      ASYNC,
    )
    await until(async () =>
      (await eventsOf(two, blocked)).some(({ type }) => type === 'turn.started'),
    )
    // It cannot answer these before it has slept; by then both sessions are another node's.
    const late = [one.get(path), one.post(`${path}/turns`, { input: 'late' })]
    const next = await two.post(`${path}/turns`, { input: 'next' }, { 'idempotency-key': 'next' })
    expect(next.status).toBe(200)
    const { seq } = (await two.get(path)).body
    const [view, turn] = await Promise.all(late)
    expect([200, 503]).toContain(view!.status)
    if (view!.status === 200) expect(view!.body.seq).toBeGreaterThanOrEqual(seq as number)
    expect([200, 503]).toContain(turn!.status)
    await until(async () => (await one.get(path)).status === 200)
    expect((await asked.catch(() => null))?.status ?? 202).toBe(202)
    await until(async () => (await eventsOf(two, blocked)).at(-1).type === 'turn.interrupted')
    for (const id of [blocked, other]) {
      const log = await eventsOf(one, id)
      expect(log.map((event) => event.seq)).toEqual(log.map((_, index) => index + 1))
      expect(JSON.stringify(log)).not.toContain('stale words')
      const count = (pattern: RegExp): number => log.filter(({ type }) => pattern.test(type)).length
      expect(count(/turn\.(done|interrupted|failed)/)).toBe(count(/turn\.started/))
    }
    expect(await metric(one, 'holdfast_leases_lost_total')).toBeGreaterThan(0)
    expect(await metric(two, 'holdfast_sessions_taken_over_total')).toBeGreaterThan(0)
  })
})

describe('a node that is cut off from the database', () => {
  it.runIf(process.env['DATABASE_URL'] === undefined)(
    'has stopped all its work before the database lets others take over',
    async () => {
      await cluster.close()
      cluster = new Cluster(database.freshUrl(), { leaseMs: LONG_LEASE_MS })
      const report = join(folder, 'pid')
      const script = `process.on('SIGTERM', () => {})
        require('fs').writeFileSync(${JSON.stringify(report)}, String(process.pid))
        console.log('up'); setInterval(() => {}, 1000)`
      const link = await Link.to(Number(new URL(database.server!.url).port))
      const direct = cluster.store
      const way = new URL(direct)
      way.port = String(link.port)
      const args = JSON.stringify(['-e', script])
      const command = JSON.stringify(process.execPath)
      const file = join(folder, 'config.mjs')
      const deaf = `deaf: { runner: 'process', command: ${command}, args: ${args} }`
      writeFileSync(file, `export default { agents: { ${deaf} } }`)
      const one = await cluster.add(['--config', file, '--store', way.href])
      const id = await sessionOn(one, { agent: 'deaf' })
      await one.post(`/v1/sessions/${id}/turns`, { input: 'go' }, ASYNC)
      await until(() => readReport(report) !== '')
      const pid = Number(readReport(report))
      expect(isAlive(pid)).toBe(true)
      expect(await metric(one, 'holdfast_lease_remaining_seconds')).toBeGreaterThan(0)
      link.cut('silence')
      await until(async () => ((await leaseLeft(one)) ?? 0) <= 0)
      expect(isAlive(pid)).toBe(false)
      expect(await metric(one, 'holdfast_lease_remaining_seconds')).toBe(0)
      expect(await metric(one, 'holdfast_sessions_owned')).toBeNaN()
      expect((await one.post(`/v1/sessions/${id}/turns`, { input: 'x' })).status).toBe(503)
      link.heal()
      await until(async () => (await metric(one, 'holdfast_lease_remaining_seconds')) > 0)
      await link.close()
    },
  )
})

function readReport(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
