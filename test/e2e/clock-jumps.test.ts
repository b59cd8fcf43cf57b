/**
 * The database's clock is set while nodes work by it. Forward past the leases, all of them have ended
 * at once: whoever holds something finds out with its next beat, and lets go of it (I5). Backward
 * they only last longer.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openHoldfast, type Agent, type Holdfast } from 'holdfast'
import { openPostgresStore } from 'holdfast/postgres'
import { startServer, type HoldfastServer } from 'holdfast/server'
import { gate, until, type Gate } from '../support/gate.ts'
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import { Cluster, freePort, type ServerProcess } from '../support/server-process.ts'
import { openTestDatabase, schemaOf, type TestDatabase } from '../support/postgres.ts'

const LEASE_MS = 3_000
const HOUR_S = 3_600

let database: TestDatabase
/** A store on whose connections the time is what `jump` says. */
let store: string

beforeAll(async () => {
  database = await openTestDatabase()
  const url = new URL(database.freshUrl())
  const clock = `${schemaOf(url.href)}_clock`
  await database.query(`CREATE SCHEMA ${clock};
    CREATE TABLE ${clock}.skew (seconds float8);
    INSERT INTO ${clock}.skew VALUES (0);
    CREATE FUNCTION ${clock}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
      'SELECT pg_catalog.clock_timestamp() + make_interval(secs => seconds) FROM ${clock}.skew'`)
  // Named first, it is found before the true one.
  url.searchParams.set('options', `-c search_path=${clock},pg_catalog`)
  store = url.href
})
afterAll(async () => {
  await database.query(`DROP SCHEMA ${schemaOf(store)}_clock CASCADE`)
  await database.close()
})

async function jump(seconds: number): Promise<void> {
  await database.query(`UPDATE ${schemaOf(store)}_clock.skew SET seconds = seconds + ${seconds}`)
}

type Node = { readonly holdfast: Holdfast; readonly server: HoldfastServer; working: Gate<string> }

/** Its agent works without a word until it is told to stop, and keeps why it was. */
async function startNode(): Promise<Node> {
  const node = { working: gate<string>() } as { -readonly [Name in keyof Node]: Node[Name] }
  const silent: Agent = ({ text }, { signal }) => {
    if (text === 'quick') return Promise.resolve(text)
    signal.addEventListener('abort', () => node.working.open(signal.reason.code))
    return new Promise(() => undefined)
  }
  const port = await freePort()
  const advertise = `http://127.0.0.1:${port}`
  const limits = { leaseMs: LEASE_MS, cancelGraceMs: 10 }
  node.holdfast = await openHoldfast({ store, advertise, agents: { silent }, limits })
  const cluster = { secret: 'a secret of at least thirty-two characters' }
  node.server = await startServer({ holdfast: node.holdfast, port, cluster })
  return node
}

async function call({ server }: Node, path: string, body?: object): Promise<any> {
  const json = { 'content-type': 'application/json', prefer: 'respond-async' }
  const init = { method: 'POST', headers: json, body: JSON.stringify(body) }
  const response = await fetch(`${server.url}${path}`, body === undefined ? {} : init)
  return response.json()
}

async function wholeLog(node: Node, session: string): Promise<LoggedEvent[]> {
  const log: LoggedEvent[] = []
  for (;;) {
    const after = log.at(-1)?.seq ?? 0
    const { events } = await call(node, `/v1/sessions/${session}/events?after=${after}`)
    if (events.length === 0) return log
    log.push(...(events as LoggedEvent[]))
  }
}

const leasesLost = ({ holdfast }: Node): number => holdfast.authority.counters.leasesLost

describe('a clock that is set', () => {
  it('forward ends all leases, and who worked under one stops within a beat', async () => {
    const [one, two] = [await startNode(), await startNode()]
    const { session } = await call(one, '/v1/keys/a/turns', { input: 'work' })
    await until(() => one.holdfast.authority.heldSession(session as string) !== null)
    await jump(HOUR_S)
    expect(await one.working.opened).toMatch(/^(lease_lost|stale_epoch)$/)
    const state = async (node: Node): Promise<any> => call(node, `/v1/sessions/${session}`)
    await until(async () => (await state(two)).running === null)
    // Nobody answers from what it remembers of before.
    const [here, there] = [await state(one), await state(two)]
    expect(here).toEqual(there)
    const { events } = await call(one, `/v1/sessions/${session}/events`)
    expect(events.map(({ type }: any) => type)).toEqual([
      ...['session.created', 'turn.queued', 'turn.started', 'turn.interrupted'],
    ])
    await until(() => leasesLost(one) > 0 && leasesLost(two) > 0)
    const next = await call(two, '/v1/keys/a/turns', { input: 'quick' })
    expect(next.session).toBe(session)
    await Promise.all([one, two].map(({ server }) => server.close({ closeHoldfast: true })))
  })

  it('forward under load loses no turn that was acknowledged, and runs none twice', async () => {
    const nodes = [await startNode(), await startNode()]
    const done = new Map<string, Set<string>>()
    let isOver = false
    const talk = async (caller: number): Promise<void> => {
      for (let number = 0; !isOver; number += 1) {
        const headers = { 'content-type': 'application/json', 'idempotency-key': `${number}` }
        const body = JSON.stringify({ input: 'quick', agent: 'silent' })
        const init = { method: 'POST', headers, body }
        const { url } = nodes[(caller + number) % 2]!.server
        const response = await fetch(`${url}/v1/keys/caller-${caller}/turns`, init)
        const { session, turn } = (await response.json()) as any
        if (turn?.state !== 'done') continue
        done.set(session, (done.get(session) ?? new Set()).add(turn.id))
      }
    }
    const callers = [0, 1, 2, 3].map(talk)
    const turns = (): number => [...done.values()].reduce((sum, { size }) => sum + size, 0)
    await until(() => turns() > 20)
    await jump(HOUR_S)
    await until(() => nodes.every((node) => leasesLost(node) > 0))
    const before = turns()
    await until(() => turns() > before + 20)
    isOver = true
    await Promise.all(callers)
    expect(done.size).toBe(4)
    for (const [session, acknowledged] of done) {
      const log = await wholeLog(nodes[0]!, session)
      expect(brokenInLog(log, true)).toEqual([])
      const ended = log.filter(({ type }) => type === 'turn.done').map(({ turn }) => turn)
      for (const turn of acknowledged) expect(ended).toContain(turn)
    }
    await Promise.all(nodes.map(({ server }) => server.close({ closeHoldfast: true })))
  })

  it('backward disturbs no node that lives', async () => {
    const [one, two] = [await startNode(), await startNode()]
    const { session, turn } = await call(one, '/v1/keys/b/turns', { input: 'work' })
    await jump(-HOUR_S)
    const beats = await Promise.all([one, two].map(({ holdfast }) => nextBeat(holdfast)))
    expect(beats).toEqual([true, true])
    expect(await call(two, `/v1/sessions/${session}`)).toMatchObject({ running: turn.id })
    expect([leasesLost(one), leasesLost(two)]).toEqual([0, 0])
    await Promise.all([one, two].map(({ server }) => server.close({ closeHoldfast: true })))
  })

  it('backward keeps what a dead node owned from others, until its row is deleted', async () => {
    const nodes = await openPostgresStore({ url: store })
    await nodes.beat('dead', LEASE_MS)
    const labels = {}
    const given = {
      id: 'c',
      principal: 'default',
      explicit: true,
      key: null,
      agent: 'silent',
      internal: false,
      labels,
    }
    await nodes.reserve({ ...given, node: 'dead', at: 0, expiresAt: null, body: '{"seq":1}' })
    await nodes.beat('alive', LEASE_MS)
    await jump(LEASE_MS / 1_000 - HOUR_S)
    expect(await nodes.claim('c', 'alive')).toEqual({ type: 'owned', node: 'dead' })
    // As the guide has it. Who lives nevertheless is told so by its next beat.
    await database.query(`DELETE FROM ${schemaOf(store)}.nodes`)
    expect((await nodes.claim('c', 'other')).type).toBe('claimed')
    expect(await nodes.beat('alive', LEASE_MS)).toBe('lapsed')
    await nodes.close()
  })
})

describe('nodes whose own clocks differ by hours', () => {
  const AGENT = fileURLToPath(new URL('../support/acp-agent.mjs', import.meta.url))
  let folder: string
  let cluster: Cluster
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-clocks-'))
    cluster = new Cluster(store, { leaseMs: LEASE_MS })
  })
  afterAll(async () => {
    await cluster.close()
    await rm(folder, { recursive: true })
  })

  /** A node as a process whose clock is off by so much, with an agent that must not hurry. */
  async function nodeOff(ms: number): Promise<ServerProcess> {
    const config = join(folder, 'holdfast.config.json')
    const env = { KEEP: folder, RESTORE: 'load' }
    const tiny = { runner: 'acp', command: process.execPath, args: [AGENT], env, reopenMs: 500 }
    await writeFile(config, JSON.stringify({ agents: { tiny } }))
    const shift = `const now = Date.now; Date.now = () => now() + ${ms}`
    const preload = `data:text/javascript,${encodeURIComponent(shift)}`
    return cluster.add(['--config', config, '--log-format', 'json'], {
      nodeFlags: ['--import', preload],
    })
  }

  const jumps = ({ output }: ServerProcess): number =>
    output.join('').split('"code":"clock_jumped"').length - 1

  it('take each other over without a wait, keep the order of times, and tell of a jump', async () => {
    const ahead = await nodeOff(HOUR_S * 1_000)
    const behind = await nodeOff(-HOUR_S * 1_000)
    const say = async (node: ServerProcess, input: string): Promise<any> =>
      (await node.post('/v1/keys/clocks/turns', { agent: 'tiny', input })).body
    const { session, turn } = await say(ahead, 'count one')
    expect(turn).toMatchObject({ state: 'done' })
    await ahead.kill()
    expect((await say(behind, 'count two')).turn).toMatchObject({ state: 'done' })
    expect(jumps(behind)).toBe(0)
    await jump(-HOUR_S)
    await until(() => jumps(behind) === 1)
    expect((await say(behind, 'count three')).turn).toMatchObject({ state: 'done' })
    const { events } = (await behind.get(`/v1/sessions/${session}/events`)).body
    const times = events.map(({ at }: { at: number }) => at)
    expect(times).toEqual(times.toSorted((one: number, other: number) => one - other))
    // By the database's clock, and neither by one node's nor by the other's.
    expect(times.at(-1) - times[0]).toBeLessThan(HOUR_S * 1_000)
  })
})

/** Waits until the node has heard from the database after this call. */
async function nextBeat({ authority }: Holdfast): Promise<boolean> {
  const from = performance.now()
  await until(() => performance.now() - authority.lease!.ageMs > from)
  return authority.lease!.leftMs > 0
}
