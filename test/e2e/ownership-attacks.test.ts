/** Ways by which a caller reached what it may not, one test each; all of them are closed. */
import { builtinAgents } from 'holdfast'
import { openTokenFile } from 'holdfast/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bearer,
  CALLERS,
  secretOf,
  Servers,
  sharedSession,
  tokenEntry,
} from '../support/principals.ts'
import { serve, type TestServer } from '../support/server.ts'
import { dial } from '../support/wire-client.ts'

let servers: Servers

beforeAll(async () => {
  servers = await Servers.open({ agents: builtinAgents })
})
afterAll(() => servers.close())

const alice = bearer('alice')

async function share(server: TestServer, path: string, body: object): Promise<void> {
  expect((await server.call('POST', `${path}/shares`, { headers: alice, body })).status).toBe(200)
}

describe('a share', () => {
  it('of a session that is closed can be removed', async () => {
    const { single } = servers
    const { path } = await sharedSession(single)
    await single.call('DELETE', path, { headers: alice })
    const answer = await single.call('DELETE', `${path}/shares/wendy`, { headers: alice })
    expect([answer.status, answer.body.state]).toEqual([200, 'removed'])
  })

  it('to answer lets its holder see what it answers', async () => {
    const { single } = servers
    const { path } = await sharedSession(single, [{ with: 'wendy', scopes: ['answer'] }])
    const headers = bearer('watcher')
    expect((await single.call('GET', path, { headers })).status).toBe(200)
    const turn = await single.call('POST', `${path}/turns`, { headers, body: { input: 'x' } })
    expect(turn.status).toBe(403)
  })

  it('that is reduced lets no driver come back', async () => {
    const { single } = servers
    const { id, path } = await sharedSession(single, [{ with: 'tom', scopes: ['talk'] }])
    const auth = { token: secretOf('talker') }
    const driver = dial(single.url, { session: id, auth })
    const { attachment, resume } = await driver.frame('welcome')
    await driver.cut()
    await share(single, path, { with: 'tom', scopes: ['watch'] })
    const back = { session: id, auth: { ...auth, resume: { attachment, token: resume } } }
    const again = dial(single.url, back)
    const answer = await again.frame(({ type }) => type === 'welcome' || type === 'refuse')
    expect([answer.type, answer['code']]).toEqual(['refuse', 'forbidden'])
    await again.closed
  })

  it('that ends cuts a transcript off that is being read', async () => {
    const { single } = servers
    const { id, path } = await sharedSession(single, [{ with: 'wendy', scopes: ['watch'] }])
    for (let count = 0; count < 20; count += 1) {
      await single.call('POST', `${path}/turns`, { headers: alice, body: { input: `n${count}` } })
    }
    const by = { kind: 'token', issuer: 'holdfast', id: 'wendy' } as const
    const access = { principal: 'wendy', groups: [], scopes: ['watch'] as const }
    const messages = single.holdfast.as(by, access).session(id).messages()
    expect((await messages.next()).done).toBe(false)
    await single.call('DELETE', `${path}/shares/wendy`, { headers: alice })
    const rest = async (): Promise<number> => {
      let count = 0
      for await (const _ of messages) count += 1
      return count
    }
    await expect(rest()).rejects.toMatchObject({ code: 'session_unknown' })
  })
})

describe('a request about a session of another', () => {
  /** How many requests the node has answered, this one left out. */
  async function answered(server: TestServer): Promise<number> {
    const { text } = await server.call('GET', '/metrics', { headers: bearer('admin') })
    const counts = [...text.matchAll(/^holdfast_http_answers_total\{.*\} (\d+)$/gm)]
    expect(counts.length).toBeGreaterThan(0)
    return counts.reduce((sum, [, count]) => sum + Number(count), 0)
  }

  it('does not get to the node that owns it', async () => {
    const { far, near } = servers
    const { id, path, turn } = await sharedSession(far)
    const response = `resp_${id}_${turn}`
    const asked: readonly [string, string, object?][] = [
      ['GET', path],
      ['POST', `${path}/turns`, { input: 'x' }],
      ['POST', '/v1/sessions', { id }],
      ['GET', `/v1/responses/${response}`],
      ['POST', `/v1/responses/${response}/cancel`, {}],
      ['POST', '/v1/responses', { model: 'echo', input: 'x', previous_response_id: response }],
      [
        'POST',
        '/v1/chat/completions',
        { model: 'echo', messages: [{ role: 'user', content: 'x' }] },
      ],
    ]
    const before = await answered(far)
    for (const [method, to, body] of asked) {
      const answer = await near.call(method, to, { headers: bearer('stranger'), body })
      expect([to, answer.status]).toEqual([to, to.endsWith('completions') ? 200 : 404])
    }
    // Its own look at the metrics is one.
    expect((await answered(far)) - before).toBe(1)
    // Alice's requests do.
    await near.call('GET', path, { headers: alice })
    expect((await answered(far)) - before).toBe(3)
  })
})

describe('a token', () => {
  it('that is limited to other agents ends what it let in', async () => {
    const write = (agents: readonly string[]) =>
      servers.files.write('agents.json', [
        tokenEntry('alice', { ...CALLERS.alice, agents }),
        tokenEntry('admin', CALLERS.admin),
      ])
    const file = await write(['echo'])
    const server = await serve({ agents: builtinAgents, tokens: await openTokenFile(file) })
    const { id, path } = await sharedSession(server, [])
    const stream = await fetch(`${server.url}${path}/events`, {
      headers: { ...alice, accept: 'text/event-stream' },
    })
    const client = dial(server.url, { session: id, auth: { token: secretOf('alice') } })
    await client.frame('welcome')
    await write(['slow'])
    await Promise.all([stream.text().catch(() => 'cut off'), client.closed])
    await server.close()
  })

  it('that was given to another principal when it expired is that of the valid entry', async () => {
    const file = await servers.files.write('twice.json', [
      tokenEntry('shared', { name: 'now', principal: 'alice', scopes: ['talk'] }),
      tokenEntry('shared', { name: 'then', principal: 'mallory', scopes: ['talk'], expiresAt: 1 }),
    ])
    const server = await serve({ agents: builtinAgents, tokens: await openTokenFile(file) })
    const call = { headers: bearer('shared'), body: {} }
    const { body } = await server.call('POST', '/v1/sessions', call)
    expect(body.principal).toBe('alice')
    await server.close()
  })
})

describe('a quota of the principal that a session belongs to', () => {
  it('refuses a guest without its numbers', async () => {
    const quotas = { principals: { alice: { storedBytes: 2_000 } } }
    const tokens = await servers.files.open()
    const server = await serve({ agents: builtinAgents, tokens, quotas })
    const { path } = await sharedSession(server, [{ with: 'tom', scopes: ['talk'] }])
    const turn = async (who: string) => {
      const call = { headers: bearer(who), body: { input: 'x'.repeat(500) } }
      return server.call('POST', `${path}/turns`, call)
    }
    while ((await turn('alice')).status === 200) continue
    const [own, guest] = [await turn('alice'), await turn('talker')]
    expect(own.body).toMatchObject({ quota: 'storedBytes', limit: 2_000, used: expect.any(Number) })
    expect([guest.status, guest.body.quota]).toEqual([429, 'storedBytes'])
    expect(guest.text).not.toMatch(/used"|limit"|2000|2_000/)
    await server.close()
  })
})
