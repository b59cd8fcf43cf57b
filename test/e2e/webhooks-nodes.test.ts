/** Webhooks of servers that are killed: nothing is lost, and nothing overtakes what came before. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Endpoint } from '../support/endpoint.ts'
import { until } from '../support/gate.ts'
import { openTestDatabase, type TestDatabase } from '../support/postgres.ts'
import { Cluster, freePort, ServerProcess } from '../support/server-process.ts'
import { SECRET, seqsOf, WebhookReceiver } from '../support/webhook-receiver.ts'

const KEYS = ['a', 'b', 'c', 'd']

let folder: string
let database: TestDatabase
const open: (() => Promise<unknown>)[] = []
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-webhooks-'))
  database = await openTestDatabase()
})
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close()
})
afterAll(async () => {
  await database.close()
  await rm(folder, { recursive: true })
})

/** A receiver that refuses two events, and a configuration that names it. */
async function prepare() {
  const receiver = await WebhookReceiver.start((_, count) =>
    count === 4 || count === 15 ? 503 : 200,
  )
  open.push(() => receiver.close())
  const config = join(folder, 'holdfast.config.json')
  const webhook = {
    ...{ name: 'hook', url: receiver.url, allow: ['127.0.0.1'] },
    ...{ secrets: [{ env: 'HOOK_SECRET' }], events: ['turn.started', 'turn.done'] },
  }
  await writeFile(config, JSON.stringify({ webhooks: [webhook] }))
  const env = { ...process.env, HOOK_SECRET: SECRET }
  return { receiver, flags: ['--config', config], env }
}

/** The node that delivers the webhook. */
async function holderOf(server: Endpoint): Promise<string | null> {
  const { body } = await server.get('/v1/webhooks')
  return body.webhooks?.[0]?.node ?? null
}

async function idOf(server: Endpoint): Promise<string> {
  const { body } = await server.get('/v1/nodes')
  return body.nodes.find(({ isSelf }: any) => isSelf).id as string
}

/** Turns in all sessions, again until each is admitted. */
async function work(server: Endpoint, count: number): Promise<void> {
  for (let done = 0; done < count; done += 1) {
    await Promise.all(
      KEYS.map(async (key) => {
        const body = { input: 'x', agent: 'echo' }
        await until(async () => (await server.post(`/v1/keys/${key}/turns`, body)).status === 200)
      }),
    )
  }
}

/** Every event of the logs has come, first confirmed in the order of its log. */
async function expectAll(server: Endpoint, receiver: WebhookReceiver): Promise<void> {
  const { body } = await server.get('/v1/sessions')
  const wanted = new Map<string, readonly number[]>()
  for (const { id } of body.sessions) {
    const { body: log } = await server.get(`/v1/sessions/${id}/events?limit=256`)
    const told = log.events.filter(({ type }: any) => /^turn\.(started|done)$/.test(type))
    wanted.set(
      id,
      told.map(({ seq }: any) => seq),
    )
  }
  expect(wanted.size).toBe(KEYS.length)
  const total = [...wanted.values()].flat().length
  await receiver.waitFor(total)
  expect(Object.fromEntries(seqsOf(receiver.confirmed))).toEqual(Object.fromEntries(wanted))
  const repeated = receiver.received.filter(({ isConfirmed }) => isConfirmed).length - total
  // What was confirmed while a node was killed.
  expect(repeated).toBeLessThanOrEqual(16)
}

describe('webhooks', () => {
  it('lose nothing when the one server is killed again and again', async () => {
    const { receiver, flags, env } = await prepare()
    const data = join(folder, 'data')
    const port = await freePort()
    const begin = () => ServerProcess.start({ data, port, flags, env })
    let server = await begin()
    for (let count = 0; count < 2; count += 1) {
      await until(async () => (await holderOf(server)) !== null)
      await work(server, 2)
      await server.kill()
      server = await begin()
    }
    open.push(() => server.kill())
    await expectAll(server, receiver)
  })

  it('go on at another node when theirs is killed, and are sent by one at a time', async () => {
    const { receiver, flags, env } = await prepare()
    const cluster = new Cluster(database.freshUrl(), { leaseMs: 1_000, parent: folder })
    open.push(() => cluster.close())
    let nodes = [await cluster.add(flags, { env }), await cluster.add(flags, { env })]
    const [first] = nodes
    await until(async () => (await holderOf(first!)) !== null)
    for (let count = 0; count < 2; count += 1) {
      await work(nodes[count % 2]!, 2)
      const holder = await holderOf(nodes[0]!)
      const ids = await Promise.all(nodes.map((node) => idOf(node)))
      expect(ids).toContain(holder)
      const killed = nodes[ids.indexOf(holder!)]!
      await killed.kill()
      nodes = [...nodes.filter((node) => node !== killed), await cluster.add(flags, { env })]
      await work(nodes[0]!, 2)
      await until(async () => {
        const now = await holderOf(nodes[0]!)
        return now !== null && now !== holder
      })
    }
    await expectAll(nodes[0]!, receiver)
    // A node that stops gives it up at once.
    const ids = await Promise.all(nodes.map((node) => idOf(node)))
    const stopping = nodes[ids.indexOf((await holderOf(nodes[0]!))!)]!
    const [left] = nodes.filter((node) => node !== stopping)
    await stopping.stop()
    await work(left!, 1)
    await expectAll(left!, receiver)
  })
})
