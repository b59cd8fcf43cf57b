/**
 * Trinity #779: the lock was keyed by the backend's session id, which the first turn does not have yet.
 * Two concurrent POSTs to a fresh session both ran, each with an id of its own: one transcript orphaned.
 *
 * The rule: one lane per session, cold and warm alike; bounded wait, then 429; one transcript; each
 * reply to its own request.
 */
import { mkdtemp, readdir, readFile, rm, appendFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Agent } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'
import { lines, serve, type TestServer } from '../support/server.ts'
import { storeUnderTest } from '../support/store-under-test.ts'

describe('Trinity #779', () => {
  let folder: string
  let server: TestServer
  let running: number
  let runningMost: number
  let hold: Gate

  /** Like Claude Code: its first turn makes an id and a JSONL, later ones resume them. */
  const backend: Agent = async ({ id, text }, { session, bind }) => {
    running += 1
    runningMost = Math.max(running, runningMost)
    const conversation = session.backend ?? crypto.randomUUID()
    await bind(conversation)
    const file = join(folder, `${conversation}.jsonl`)
    await appendFile(file, `${JSON.stringify({ id, role: 'user', text })}\n`)
    const before = lines(await readFile(file, 'utf8')).filter(({ role }) => role === 'user').length
    await appendFile(file, `${JSON.stringify({ id, role: 'assistant', text })}\n`)
    running -= 1
    return `${text} (message ${before})`
  }
  const held: Agent = async ({ text }) => hold.opened.then(() => text)

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-trinity-'))
    running = 0
    runningMost = 0
    hold = gate()
    server = await serve({
      store: storeUnderTest(`sqlite:${join(folder, 'store', 'holdfast.db')}`),
      agents: { backend, held },
      limits: { waitMs: 500 },
    })
  })
  afterEach(async () => {
    hold.open()
    await server.close()
    await rm(folder, { recursive: true })
  })

  const jsonls = async () => (await readdir(folder)).filter((name) => name.endsWith('.jsonl'))
  const transcript = async (session: string) =>
    lines((await server.get(`/v1/sessions/${session}/transcript`)).body)

  it('runs two concurrent first POSTs one after the other, on one backend session', async () => {
    const { body: session } = await server.post('/v1/sessions', {})
    const post = (input: string) =>
      server.post(`/v1/sessions/${session.id}/turns`, { input, waitMs: 100_000 })
    const [first, second] = await Promise.all([
      post('cold concurrent 1'),
      post('cold concurrent 2'),
    ])
    expect([first.status, second.status]).toEqual([200, 200])
    expect(first.body.turn.reply.text).toMatch(/^cold concurrent 1 /)
    expect(second.body.turn.reply.text).toMatch(/^cold concurrent 2 /)
    const messages = await transcript(session.id)
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant'])
    for (const [user, assistant] of [messages.slice(0, 2), messages.slice(2)]) {
      expect(assistant.text).toContain(user.text)
      expect(assistant.turn).toBe(user.turn)
    }
    expect(await jsonls()).toHaveLength(1)
    expect(runningMost).toBe(1)
    const { body } = await server.get(`/v1/sessions/${session.id}`)
    expect(await jsonls()).toEqual([`${body.backend}.jsonl`])
  })

  it('gives 100 concurrent first POSTs on one fresh key one session and 100 turns in order', async () => {
    const post = (n: number) =>
      server.post('/v1/keys/fresh/turns', { input: `request ${n}`, waitMs: 100_000 })
    const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => post(n)))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    const [session, ...others] = new Set(answers.map(({ body }) => body.session))
    expect(others).toEqual([])
    answers.forEach(({ body }, n) => {
      expect(body.turn.reply.text).toMatch(new RegExp(`^request ${n} `))
    })
    const messages = await transcript(session)
    expect(messages).toHaveLength(200)
    for (let n = 0; n < 200; n += 2) {
      expect(messages[n + 1].turn).toBe(messages[n].turn)
      expect(messages[n + 1].text).toBe(`${messages[n].text} (message ${n / 2 + 1})`)
    }
    expect(await jsonls()).toHaveLength(1)
    expect(runningMost).toBe(1)
  })

  it('refuses with 429 and Retry-After when the wait is over, and nothing has happened', async () => {
    const path = '/v1/keys/busy/turns'
    const first = server.post(path, { input: 'first', agent: 'held' })
    const session = await server.holdfast.resolve({ key: 'busy', agent: 'held' })
    await until(async () => (await session.state()).running !== null)
    const refused = await server.post(path, { input: 'second' })
    expect(refused.status).toBe(429)
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect(refused.body).toMatchObject({ code: 'session_busy', position: 1 })
    expect(refused.body.retryAfterMs).toBeGreaterThan(0)
    hold.open()
    expect((await first).status).toBe(200)
    const texts = (await transcript(session.id)).map(({ text }) => text)
    expect(texts).toEqual(['first', 'first'])
    expect((await server.post(path, { input: 'second' })).status).toBe(200)
  })

  it('lets cold turns of different sessions run at the same time', async () => {
    const first = server.post('/v1/keys/one/turns', { input: 'x', agent: 'held' })
    await server.holdfast.resolve({ key: 'one', agent: 'held' })
    const second = await server.post('/v1/keys/two/turns', { input: 'y', agent: 'backend' })
    expect(second.status).toBe(200)
    hold.open()
    expect((await first).status).toBe(200)
  })
})
