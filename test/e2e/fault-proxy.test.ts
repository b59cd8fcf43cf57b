/**
 * Two hundred clients whose connections are cut at random bytes, all the time: nobody misses anything,
 * nobody is told anything twice, and no request runs twice. `HOLDFAST_FAULT_SECONDS=60` does it longer.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isTold } from '../../src/core/feed-item.ts'
import type { Agent, SessionEvent, SessionHandle } from 'holdfast'
import { Random } from '../simulation/random.ts'
import { FaultProxy } from '../support/fault-proxy.ts'
import { Follower } from '../support/follower.ts'
import { until } from '../support/gate.ts'
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import { serve, type TestServer } from '../support/server.ts'

/** At least so long, so many cuts, and a part of an answer for everyone on average. */
const SECONDS = Number(process.env['HOLDFAST_FAULT_SECONDS'] ?? 0)
const CUTS = 300
const SEED = Number(process.env['HOLDFAST_FAULT_SEED'] ?? Date.now() % 1_000_000)
const [SESSIONS, CLIENTS, REQUESTS] = [4, 200, 2]

let server: TestServer
let proxy: FaultProxy
let url: string

/** Says numbers: a few messages, each in parts that arrive one by one. */
const count: Agent = async function* ({ text }) {
  if (text.startsWith('request')) return
  for (let message = 0; message < 3; message += 1) {
    let said = ''
    for (let part = 0; part < 6; part += 1) {
      const next = `${text}.${message}.${part} `
      said += next
      yield next
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
    yield { type: 'message', text: said }
  }
}

beforeAll(async () => {
  const random = new Random(SEED)
  server = await serve({ agents: { count } })
  // Some are cut before they have said hello, some in the welcome, most later.
  const bytes = (): number => random.between(1, random.chance(0.3) ? 1_500 : 15_000)
  proxy = new FaultProxy({ port: server.port, bytes })
  url = await proxy.listen()
})

afterAll(async () => {
  await proxy.close()
  await server.close()
})

describe(`connections that are cut at random bytes (seed ${SEED})`, () => {
  const time = 180_000 + SECONDS * 1_000
  it('lose nothing, repeat nothing and run nothing twice', { timeout: time }, async () => {
    const followers = Array.from(
      { length: CLIENTS },
      (_, n) => new Follower({ url, key: `stream ${n % SESSIONS}`, options: {} }),
    )
    const sessions = await Promise.all(
      Array.from({ length: SESSIONS }, (_, n) => server.holdfast.resolve({ key: `stream ${n}` })),
    )
    const end = performance.now() + SECONDS * 1_000
    const deltas = (): number => followers.reduce((sum, follower) => sum + follower.deltas, 0)
    const isEnough = (): boolean =>
      proxy.cuts >= CUTS && deltas() > CLIENTS && performance.now() >= end
    const working = sessions.map((session) => produce(session, isEnough))
    // Requests of clients, in the midst of it.
    followers.slice(0, 40).forEach((follower, n) => {
      for (let id = 0; id < REQUESTS; id += 1) follower.ask(`${id}`, `request ${n}/${id}`)
    })
    await Promise.all(working)
    proxy.isGentle = true
    await Promise.all(followers.map((follower) => follower.caughtUp(0)))
    await until(async () => (await Promise.all(sessions.map(isQuiet))).every(Boolean))
    const logs = await Promise.all(sessions.map((session) => logOf(session)))
    for (const [n, follower] of followers.entries()) {
      await follower.caughtUp(logs[n % SESSIONS]?.told.at(-1) ?? 0)
    }
    await Promise.all(followers.map((follower) => follower.leave()))

    const problems = followers.flatMap(({ problems }, n) => problems.map((text) => `${n}: ${text}`))
    expect(problems).toEqual([])
    for (const [n, { seqs }] of followers.entries()) {
      expect(seqs).toEqual(logs[n % SESSIONS]?.told)
    }
    expect(logs.flatMap(({ events }) => brokenInLog(events, true))).toEqual([])
    const inputs = logs.flatMap(({ events }) => events.map(({ input }) => input))
    const asked = inputs.filter((input) => String(input).startsWith('request'))
    expect(asked).toHaveLength(40 * REQUESTS)
    expect(new Set(asked).size).toBe(asked.length)
  })
})

async function produce(session: SessionHandle, isEnough: () => boolean): Promise<void> {
  for (let n = 1; !isEnough(); n += 1) await session.turn(`turn ${n}`)
}

async function isQuiet(session: SessionHandle): Promise<boolean> {
  const { running, queued } = await session.state()
  return running === null && queued.length === 0
}

/** The log, and the positions of what is told to those who do not ask for presence. */
async function logOf(session: SessionHandle) {
  const events: LoggedEvent[] = []
  for (let after = 0; ;) {
    const page = await session.read(after, 1_000)
    if (page.events.length === 0) break
    events.push(...page.events.map(({ body }) => JSON.parse(body) as SessionEvent as LoggedEvent))
    after = page.events.at(-1)?.seq ?? after
  }
  const told = events.filter(({ type }) => isTold(type, false))
  return { events, told: told.map(({ seq }) => seq) }
}
