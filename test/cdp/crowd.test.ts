/**
 * Ten clients at once on one browser, each dropped again and again at random. Every command carries
 * a nonce of its client: no reply may reach another, none may be lost or come twice, and in the end
 * nothing may be left behind.
 */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { HeldConnection } from '../../src/cdp/index.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'

const CLIENTS = 10
const COMMANDS = 60

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
  drops = 0
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
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' })
    const attach = { targetId, flatten: true }
    const sessions = await Promise.all(
      [1, 2].map(async () => (await this.send('Target.attachToTarget', attach)).sessionId),
    )
    const timer = setInterval(() => this.#dropPerhaps(), 20)
    const values = await Promise.all(
      Array.from({ length: COMMANDS }, async (_, n) => {
        await new Promise((resolve) => setTimeout(resolve, n * 15))
        const expression = `'${this.nonce} ${n}'`
        const reply = await this.send('Runtime.evaluate', { expression }, sessions[n % 2])
        return reply.result.value as string
      }),
    )
    clearInterval(timer)
    return values
  }

  #dropPerhaps(): void {
    if (Math.random() > 0.15) return
    this.drops += 1
    this.connection.drop()
  }
}

it('gives everyone its own replies, all of them, once; and keeps nothing', async () => {
  const members = await Promise.all(
    Array.from({ length: CLIENTS }, async () => new Member(await HeldConnection.open(server.url))),
  )
  const results = await Promise.all(members.map((member) => member.work()))
  for (const [index, { nonce, replies }] of members.entries()) {
    expect(results[index]).toEqual(Array.from({ length: COMMANDS }, (_, n) => `${nonce} ${n}`))
    expect([...replies.values()].every(({ length }) => length === 1)).toBe(true)
  }
  expect(members.reduce((sum, { drops }) => sum + drops, 0)).toBeGreaterThan(CLIENTS)
  for (const { connection } of members) connection.close()
  await expect
    .poll(() => server.server.browserCounts(), { timeout: 15_000 })
    .toEqual({ browsers: 1, sessions: 0, clients: 0, attached: 0, waiting: 0, pages: 0 })
  expect((await server.holdfast.list({ state: 'open' })).sessions).toEqual([])
})
