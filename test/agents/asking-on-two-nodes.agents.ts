/**
 * Real agents that ask, on two nodes with one PostgreSQL: turns, asks and answers come to the node
 * that does not own the session, and the owner is killed while it asks.
 */
import { mkdirSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  answer,
  ASKING,
  AskingAgent,
  asksAt,
  optionOf,
  outcomesOf,
  sessionOf,
} from '../support/asking-agent.ts'
import { until } from '../support/gate.ts'
import { passedOnBy } from '../support/nodes-under-test.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { Cluster, type ServerProcess } from '../support/server-process.ts'
import { expectOwnAnswers } from '../support/turns-at-once.ts'

const LEASE_MS = 3_000

describe.each(ASKING)('%s on two nodes', (name) => {
  let database: TestDatabase
  let agent: AskingAgent
  let cluster: Cluster
  let owner: ServerProcess
  let other: ServerProcess

  beforeAll(async () => {
    database = await openTestDatabase()
  })
  afterAll(() => database.close())
  beforeEach(async () => {
    agent = await AskingAgent.open(name)
    cluster = new Cluster(database.freshUrl(), { leaseMs: LEASE_MS })
    const { flags, env } = agent.starting
    mkdirSync(agent.data)
    const add = () => cluster.add(['--drain-ms', '0', ...flags], { cwd: agent.data, env })
    owner = await add()
    other = await add()
    expect((await owner.post('/v1/sessions', { key: 'k' })).status).toBe(201)
  })
  afterEach(async () => {
    await cluster.close()
    await agent.close()
  })

  const turnBy = async (node: ServerProcess, input: string, key?: string): Promise<any> => {
    const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key }
    const body = { input, waitMs: 120_000 }
    const answered = await node.post('/v1/keys/k/turns', body, headers)
    return answered.body.turn ?? answered.body
  }

  it('asks and is answered through the node that does not own its session', async () => {
    expect((await turnBy(other, 'one')).reply.text).toBe('seen 1: one')
    const done = turnBy(other, agent.wants('mkdir made'))
    const [ask] = await asksAt(other)
    expect(ask.detail.command).toContain('mkdir made')
    const { body } = await other.get(`/v1/sessions/${ask.session.id}/asks`)
    expect(body.asks).toMatchObject([{ id: ask.id }])
    await answer(other, ask, optionOf(ask, 'allow'))
    expect((await done).state).toBe('done')
    expect(agent.has('made')).toBe(true)
    const both = await Promise.all([turnBy(owner, 'here'), turnBy(other, 'there')])
    const [third, fourth] = both.toSorted((one, two) => one.startedAt - two.startedAt)
    expect(third.reply.text).toBe(`seen 3: ${third.input}`)
    expect(fourth.reply.text).toBe(`seen 4: ${fourth.input}`)
    expect(await passedOnBy(other.url)).toBeGreaterThan(4)
    await agent.expectLinear(other, 'k')
  })

  it('answers 20 turns at once through three doors of both nodes, each its own', async () => {
    await expectOwnAnswers(agent, [owner, other])
    expect((await passedOnBy(owner.url)) + (await passedOnBy(other.url))).toBeGreaterThan(0)
  })

  it('loses its owner while it asks: the other node withdraws the ask, and goes on', async () => {
    expect((await turnBy(other, 'one')).reply.text).toBe('seen 1: one')
    await agent.expectLinear(other, 'k')
    const lost = turnBy(other, agent.wants('mkdir late'), 'late')
    const [ask] = await asksAt(other)
    await owner.kill()
    await until(() => agent.running(other).length === 0)
    // It waits for the lease to end, finds the turn by its key, and tells that it was interrupted.
    expect(await lost).toMatchObject({ state: 'interrupted' })
    const refused = await answer(other, ask, optionOf(ask, 'allow'))
    expect([refused.status, refused.body.code]).toEqual([409, 'ask_settled'])
    expect((await other.get('/v1/asks')).body.asks).toEqual([])
    const again = turnBy(other, agent.wants('mkdir late'))
    const [second] = await asksAt(other)
    expect(second.id).not.toBe(ask.id)
    expect(agent.has('late')).toBe(false)
    await answer(other, second, optionOf(second, 'allow'))
    expect((await again).state).toBe('done')
    expect(agent.has('late')).toBe(true)
    expect((await turnBy(other, 'last')).reply.text).toMatch(/^seen [34]: last$/)
    expect(await sessionOf(other, 'k')).toBe(ask.session.id)
    expect(await outcomesOf(other, 'k')).toEqual(['withdrawn', 'answered'])
    await agent.expectLinear(other, 'k')
  })
})
