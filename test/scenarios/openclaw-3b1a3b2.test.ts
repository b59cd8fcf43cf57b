/**
 * OpenClaw 3b1a3b2: "Concurrent commands for the same session key minted separate sessionIds […], so a
 * second request that arrived mid-turn forked an isolated, memory-less session."
 *
 * The rule: a key is reserved atomically and re-read inside; explicit ids pass; internal sessions leave
 * no visible row; the steady state takes no lock.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import OpenAI from 'openai'
import type { Agent } from 'holdfast'
import { gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'

const KEY = 'agent:main:finn:c1'

/** Answers with how many user messages it has seen: lost memory shows. */
const remembering: Agent = async (turn, context) => {
  let seen = 0
  for await (const message of context.history()) if (message.role === 'user') seen += 1
  return `${turn.text}: ${seen} before`
}

describe('OpenClaw 3b1a3b2', () => {
  const hold = gate()
  let server: TestServer

  beforeEach(async () => {
    const held: Agent = async ({ text }) => hold.opened.then(() => text)
    server = await serve({ agents: { remembering, held } })
  })
  afterEach(() => server.close())

  it('forks when a key is looked up first and created after: the bug', async () => {
    const lookUp = async () => (await server.holdfast.list({ key: KEY })).sessions[0]
    const create = () => server.holdfast.resolve({ internal: true })
    const naive = async () => (await lookUp())?.id ?? (await create()).id
    const [first, second] = await Promise.all([naive(), naive()])
    expect(first).not.toBe(second)
  })

  it('gives concurrent requests for one key one session, and exactly one created it', async () => {
    const { holdfast } = server
    const all = await Promise.all(Array.from({ length: 100 }, () => holdfast.resolve({ key: KEY })))
    expect(new Set(all.map(({ id }) => id)).size).toBe(1)
    expect(all.filter(({ isNew }) => isNew)).toHaveLength(1)
    const { sessions } = await holdfast.list({ key: KEY })
    expect(sessions.map(({ id }) => id)).toEqual([all[0]?.id])
  })

  it('answers one 201 and otherwise 200 over HTTP, all with one id', async () => {
    const ask = () => server.post('/v1/sessions', { key: KEY })
    const all = await Promise.all(Array.from({ length: 50 }, ask))
    expect(all.map(({ status }) => status).toSorted()).toEqual([...Array(49).fill(200), 201])
    expect(new Set(all.map(({ body }) => body.id)).size).toBe(1)
    expect(all.filter(({ body }) => body.isNew)).toHaveLength(1)
  })

  it('lets a request that arrives in the middle of the first turn join its session', async () => {
    const path = `/v1/keys/${encodeURIComponent(KEY)}/turns`
    const [first, second] = await Promise.all([
      server.post(path, { input: 'one' }),
      server.post(path, { input: 'two' }),
    ])
    expect([first.status, second.status]).toEqual([200, 200])
    expect(second.body.session).toBe(first.body.session)
    const replies = [first, second].map(({ body }) => body.turn.reply.text).toSorted()
    expect(replies.map((reply) => reply.split(': ')[1]).toSorted()).toEqual([
      '0 before',
      '1 before',
    ])
  })

  it('uses the reserved id for a follow-up', async () => {
    const first = await server.holdfast.resolve({ key: KEY })
    const second = await server.holdfast.resolve({ key: KEY })
    expect(second).toMatchObject({ id: first.id, isNew: false })
  })

  it('passes an explicit id through unchanged', async () => {
    const explicit = await server.holdfast.resolve({ id: 'explicit-123' })
    expect(explicit).toMatchObject({ id: 'explicit-123', isNew: true })
    const again = await server.post('/v1/sessions', { id: 'explicit-123' })
    expect(again).toMatchObject({ status: 200, body: { id: 'explicit-123', isNew: false } })
  })

  it('leaves no row for an internal session, neither in lists nor under its key', async () => {
    const internal = await server.holdfast.resolve({ key: KEY, internal: true })
    expect(internal.isNew).toBe(true)
    expect((await server.holdfast.list()).sessions).toEqual([])
    expect((await server.holdfast.list({ key: KEY })).sessions).toEqual([])
    const visible = await server.holdfast.resolve({ key: KEY })
    expect(visible.isNew).toBe(true)
    expect(visible.id).not.toBe(internal.id)
  })

  it('resolves a known key without asking the store, even while its turn runs', async () => {
    const { holdfast } = server
    const session = await holdfast.resolve({ key: KEY, agent: 'held' })
    const turn = session.turn('slow one')
    await turn.admission
    const { store } = holdfast.authority
    const reserve = store.reserve.bind(store)
    let asked = 0
    store.reserve = (reservation) => ((asked += 1), reserve(reservation))
    await Promise.all(Array.from({ length: 20 }, () => holdfast.resolve({ key: KEY })))
    expect(asked).toBe(0)
    hold.open()
    expect((await turn).reply?.text).toBe('slow one')
  })

  it('gives a key whose session is closed to a new session, once', async () => {
    const { holdfast } = server
    const old = await holdfast.resolve({ key: KEY })
    await old.close()
    const all = await Promise.all(Array.from({ length: 20 }, () => holdfast.resolve({ key: KEY })))
    expect(new Set(all.map(({ id }) => id)).size).toBe(1)
    expect(all[0]?.id).not.toBe(old.id)
    expect(all.filter(({ isNew }) => isNew)).toHaveLength(1)
  })

  it('holds for stock OpenAI clients too: one session, and a follow-up remembers', async () => {
    const say = async (content: string) => {
      const openai = new OpenAI({
        baseURL: `${server.url}/v1`,
        apiKey: 'none',
        maxRetries: 0,
        defaultHeaders: { 'x-session-key': KEY },
      })
      const messages = [{ role: 'user' as const, content }]
      const completion = await openai.chat.completions.create({ model: 'remembering', messages })
      return completion.choices[0]?.message.content ?? ''
    }
    const texts = Array.from({ length: 10 }, (_, index) => `message ${index}`)
    const replies = await Promise.all(texts.map(say))
    expect(replies.map((reply) => reply.split(': ')[0])).toEqual(texts)
    const befores = replies.map((reply) => Number(/(\d+) before/.exec(reply)?.[1]))
    expect(befores.toSorted((one, other) => one - other)).toEqual(texts.map((_, index) => index))
    expect(await say('follow-up')).toBe('follow-up: 10 before')
    expect((await server.holdfast.list({ key: KEY })).sessions).toHaveLength(1)
  })
})
