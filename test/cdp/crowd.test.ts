/**
 * Ten clients at once on one browser, each dropped at random commands. Every command carries
 * a nonce of its client: no reply may reach another, none may be lost or come twice, and in the end
 * nothing may be left behind.
 */
import { randomInt, randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { HeldConnection } from '../../src/cdp/index.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'

const CLIENTS = 10
const COMMANDS = 40
/** So many of the commands a client is dropped with. */
const DROPS = 4

let server: CdpServer

beforeAll(async () => {
  server = await serveCdp()
})
afterAll(() => server.close())

/** One client of the crowd: what it asked for, and what came. */
class Member {
  readonly nonce = randomUUID()
  readonly replies = new Map<number, any[]>()
  readonly connection: HeldConnection
  #id = 0
  #answered: (() => void)[] = []

  constructor(connection: HeldConnection) {
    this.connection = connection
    connection.onMessage = (text) => {
      const { id, ...reply } = JSON.parse(text)
      if (id === undefined) return
      this.replies.set(id, [...(this.replies.get(id) ?? []), reply])
      for (const look of this.#answered.splice(0)) look()
    }
  }

  async send(method: string, params: object = {}, sessionId?: string): Promise<any> {
    this.#id += 1
    const id = this.#id
    this.connection.send(JSON.stringify({ id, method, params, sessionId }))
    while (!this.replies.has(id)) {
      await new Promise<void>((resolve) => {
        this.#answered.push(resolve)
      })
    }
    return this.replies.get(id)?.[0].result
  }

  async work(): Promise<string[]> {
    const { targetInfos } = await this.send('Target.getTargets')
    const { targetId } = targetInfos[0]
    const attach = { targetId, flatten: true }
    const sessions = await Promise.all(
      [1, 2].map(async () => (await this.send('Target.attachToTarget', attach)).sessionId),
    )
    const drops = new Set(Array.from({ length: DROPS }, () => randomInt(COMMANDS)))
    return Promise.all(
      Array.from({ length: COMMANDS }, async (_, n) => {
        await setTimeout(n * 15)
        const expression = `'${this.nonce} ${n}'`
        const replied = this.send('Runtime.evaluate', { expression }, sessions[n % 2])
        if (drops.has(n)) this.connection.drop()
        return (await replied).result.value as string
      }),
    )
  }

  /** Whether it lost its connection, and has come back. */
  async hasReturned(): Promise<boolean> {
    const { events } = await server.holdfast.session(this.connection.session ?? '').read(0, 1_000)
    return events.some(({ body }) => JSON.parse(body).type === 'attachment.resumed')
  }
}

it('gives everyone its own replies, all of them, once; and keeps nothing', async () => {
  const members = await Promise.all(
    Array.from({ length: CLIENTS }, async () => new Member(await HeldConnection.open(server.url))),
  )
  const results = await Promise.all(members.map((member) => member.work()))
  for (const [index, member] of members.entries()) {
    const { nonce, replies } = member
    expect(await member.hasReturned()).toBe(true)
    expect(results[index]).toEqual(Array.from({ length: COMMANDS }, (_, n) => `${nonce} ${n}`))
    expect([...replies.values()].every(({ length }) => length === 1)).toBe(true)
  }
  for (const { connection } of members) connection.close()
  await expect
    .poll(() => server.server.browserCounts())
    .toEqual({ browsers: 1, sessions: 0, clients: 0, attached: 0, waiting: 0, pages: 0 })
  expect((await server.holdfast.list({ state: 'open' })).sessions).toEqual([])
})
