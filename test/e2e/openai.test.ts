/** The OpenAI door, from outside: the stock `openai` client against a real server. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { builtinAgents, type Agent, type Holdfast } from 'holdfast'
import type { Scope } from '../../src/core/access.ts'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { serve, type TestServer } from '../support/server.ts'

let holdfast: Holdfast
let server: TestServer
let proxy: CuttingProxy
let proxied = ''
let puppet = new Puppet()
/** Every turn that an agent was given. */
let ran: string[] = []

/** Answers with what it was given and how much it remembers. */
const witness: Agent = async ({ text, input }, context) => {
  ran.push(text)
  let before = 0
  for await (const { role } of context.history()) if (role === 'user') before += 1
  const { instructions } = context.settings
  return JSON.stringify({ input, instructions, before })
}

/** Takes no settings. */
const plain: Agent = Object.assign(async () => 'plain', { capabilities: { settings: [] } })

/** Thinks aloud first: two messages in one turn. */
const thinker: Agent = async function* ({ text }) {
  yield 'let me '
  yield { type: 'message', text: 'let me think' }
  yield text
}

const failing: Agent = async () => {
  throw new Error('out of ideas')
}

beforeAll(async () => {
  const played: Agent = (turn, context) => {
    ran.push(turn.text)
    return puppet.agent(turn, context)
  }
  const agents = { witness, plain, thinker, failing, played, ...builtinAgents }
  server = await serve({ agents, heartbeatMs: 20 })
  holdfast = server.holdfast
  proxy = new CuttingProxy(server.port)
  proxied = await proxy.listen()
})

afterEach(() => {
  ran = []
  puppet = new Puppet()
})

afterAll(async () => {
  await proxy.close()
  await server.close()
})

function client(
  options: {
    key?: string
    url?: string
    maxRetries?: number
    apiKey?: string
    headers?: Record<string, string>
  } = {},
) {
  const { key, url = server.url, maxRetries = 0, apiKey = 'none', headers = {} } = options
  return new OpenAI({
    baseURL: `${url}/v1`,
    apiKey,
    maxRetries,
    defaultHeaders: { ...headers, ...(key === undefined ? {} : { 'x-session-key': key }) },
  })
}

const user = (content: string) => ({ role: 'user' as const, content })

async function say(openai: OpenAI, text: string, model = 'witness'): Promise<string> {
  const completion = await openai.chat.completions.create({ model, messages: [user(text)] })
  return completion.choices[0]?.message.content ?? ''
}

describe('chat completions', () => {
  it('are what the agent answers', async () => {
    const tuning = { temperature: 0.2, max_tokens: 10, user: 'some-app', future_field: 1 }
    const completion = await client({ key: 'shape' }).chat.completions.create({
      ...tuning,
      model: 'echo',
      messages: [user('hello')],
    })
    expect(completion).toMatchObject({
      object: 'chat.completion',
      model: 'echo',
      choices: [
        { index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello' } },
      ],
      usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
    })
  })

  it('stream in chunks, with the usage if that is wanted', async () => {
    const stream = await client({ key: 'stream' }).chat.completions.create({
      model: 'played',
      messages: [user('go')],
      stream: true,
      stream_options: { include_usage: true },
    })
    const strings = await puppet.turn('go')
    const seen: string[] = []
    const chunks: OpenAI.ChatCompletionChunk[] = []
    const words = ['one ', 'two ', 'three']
    for await (const chunk of stream) {
      chunks.push(chunk)
      const text = chunk.choices[0]?.delta.content ?? ''
      if (text !== '') seen.push(text)
      const next = words[seen.length]
      // A word is said only when the one before has arrived: nothing is held back.
      if (next === undefined) strings.end()
      else if (seen.length === 0 || text !== '') strings.say(next)
    }
    expect(seen).toEqual(words)
    expect(chunks[0]?.choices[0]?.delta).toMatchObject({ role: 'assistant' })
    expect(chunks.at(-2)?.choices[0]?.finish_reason).toBe('stop')
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 0 } })
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1)
  })

  it('work with the helper of the client, over a turn of several messages', async () => {
    const params = { model: 'thinker', messages: [user('done')] }
    const stream = client({ key: 'helper' }).chat.completions.stream(params)
    expect(await stream.finalContent()).toBe('let me think\n\ndone')
    const whole = await client({ key: 'helper' }).chat.completions.create(params)
    expect(whole.choices[0]?.message.content).toBe('let me think\n\ndone')
  })

  it('with a key do not look at what was said before, whatever it holds', async () => {
    const messages = [
      { role: 'assistant', content: null, tool_calls: [] },
      { role: 'tool', content: 'x', tool_call_id: '1' },
      user('only this'),
    ]
    const completion = await client({ key: 'odd past' }).chat.completions.create({
      model: 'echo',
      messages: messages as OpenAI.ChatCompletionMessageParam[],
    })
    expect(completion.choices[0]?.message.content).toBe('only this')
  })

  it('with a key take only the new message, for the session remembers', async () => {
    const openai = client({ key: 'memory' })
    await say(openai, 'first')
    const second = await openai.chat.completions.create({
      model: 'witness',
      messages: [
        { role: 'system', content: 'be brief' },
        user('first'),
        { role: 'assistant', content: 'whatever' },
        { role: 'user', content: [{ type: 'text', text: 'second' }] },
      ],
    })
    const told = JSON.parse(second.choices[0]?.message.content ?? '')
    expect(told).toEqual({ input: 'second', instructions: 'be brief', before: 1 })
    const { sessions } = await holdfast.list({ key: 'memory' })
    expect(sessions).toHaveLength(1)
  })

  it('without a key are a session of their own, which gets the whole conversation', async () => {
    const before = (await holdfast.list()).sessions.length
    const messages = [
      { role: 'developer' as const, content: 'be brief' },
      user('my name is Ann'),
      { role: 'assistant' as const, content: 'hello Ann' },
      user('what is my name?'),
    ]
    const { data, response } = await client()
      .chat.completions.create({ model: 'witness', messages })
      .withResponse()
    const {
      input,
      instructions,
      before: remembered,
    } = JSON.parse(data.choices[0]?.message.content ?? '')
    expect(remembered).toBe(0)
    expect(instructions).toBe('be brief')
    expect(input.text).toBe(
      'User: my name is Ann\n\nAssistant: hello Ann\n\nUser: what is my name?',
    )
    expect(input.messages.map(({ role }: { role: string }) => role)).toEqual([
      'user',
      'assistant',
      'user',
    ])
    expect(await say(client(), 'only this', 'echo')).toBe('only this')
    expect((await holdfast.list()).sessions).toHaveLength(before)
    const session = holdfast.session(response.headers.get('x-session-id') ?? '')
    await until(async () => (await session.state()).closed !== null)
  })

  it('add their instructions to those of the session', async () => {
    const session = await holdfast.resolve({ key: 'instructed', agent: 'witness' })
    await session.configure({ instructions: 'be kind' })
    const { output_text: told } = await client({ key: 'instructed' }).responses.create({
      model: 'witness',
      instructions: 'be brief',
      input: 'hello',
    })
    expect(JSON.parse(told)).toMatchObject({ instructions: 'be kind\n\nbe brief' })
    expect((await session.state()).settings).toEqual({ instructions: 'be kind' })
  })

  it('with instructions are refused by an agent that takes none, and nothing has happened', async () => {
    const openai = client({ key: 'plain' })
    const system = (content: string) => ({ role: 'system' as const, content })
    const instructed = { model: 'plain', messages: [system('be brief'), user('hi')] }
    const expected = { status: 422, code: 'setting_unsupported', param: 'instructions' }
    await expect(openai.chat.completions.create(instructed)).rejects.toMatchObject(expected)
    const response = { model: 'plain', instructions: 'be brief', input: 'hi' }
    await expect(client().responses.create(response)).rejects.toMatchObject(expected)
    expect(await holdfast.find('plain')).toBeNull()
    // Those of requests without a key are never listed.
    const { changes } = await holdfast.authority.store.changes(0, 1_000)
    const open = changes.filter(({ row }) => row.agent === 'plain' && row.state !== 'erased')
    expect(open).toEqual([])
    const empty = { model: 'plain', messages: [system(' '), user('hi')] }
    const completion = await openai.chat.completions.create(empty)
    expect(completion.choices[0]?.message.content).toBe('plain')
    const silent = { model: 'plain', instructions: '', input: 'hi' }
    expect((await client().responses.create(silent)).output_text).toBe('plain')
    const long = { model: 'witness', instructions: 'x'.repeat(65_537), input: 'hi' }
    const tooLong = { status: 400, code: 'invalid_field', param: 'instructions' }
    await expect(client().responses.create(long)).rejects.toMatchObject(tooLong)
  })

  it('never take the field user for a key', async () => {
    const openai = client()
    for (const text of ['one', 'two']) {
      const params = { model: 'witness', messages: [user(text)], user: 'the-app' }
      const completion = await openai.chat.completions.create(params)
      expect(JSON.parse(completion.choices[0]?.message.content ?? '').before).toBe(0)
    }
    expect((await holdfast.list({ key: 'the-app' })).sessions).toEqual([])
  })

  it('go on when the client drops (I10)', async () => {
    const stop = new AbortController()
    const openai = client({ key: 'dropped' })
    const request = openai.chat.completions.create(
      { model: 'played', messages: [user('long')], stream: true },
      { signal: stop.signal },
    )
    const stream = await request
    const strings = await puppet.turn('long')
    stop.abort()
    for await (const _ of stream) void _
    strings.end('finished all the same')
    const [row] = (await holdfast.list({ key: 'dropped' })).sessions
    const record = await holdfast.session(row!.id).finished('t2')
    expect(record).toMatchObject({ state: 'done', reply: { text: 'finished all the same' } })
  })

  it('are denied what no client can answer, unless the session or the request says wait', async () => {
    const denied = 'I may not: nobody_to_ask'
    expect(await say(client({ key: 'nobody' }), 'open the door', 'ask')).toBe(denied)
    expect(await say(client(), 'open the door', 'ask')).toBe(denied)
    const session = await holdfast.resolve({ key: 'patient session', agent: 'ask' })
    await session.configure({ onNobody: 'wait' })
    const waiting = say(client({ key: 'patient session' }), 'open the door', 'ask')
    await until(async () => (await asksOf('patient session')).length === 1)
    const [ask] = await asksOf('patient session')
    await session.answer(ask!.id, 'allow')
    expect(await waiting).toBe('open the door')
    const wrong = client({ key: 'nobody', headers: { 'x-session-on-nobody': 'allow' } })
    const refused = say(wrong, 'open the door', 'ask')
    await expect(refused).rejects.toMatchObject({ status: 400, param: 'x-session-on-nobody' })
  })

  it('wait while the agent asks, and anybody may answer', async () => {
    const patient = { key: 'asking', headers: { 'x-session-on-nobody': 'wait' } }
    const answer = say(client(patient), 'open the door', 'ask')
    await until(async () => (await asksOf('asking')).length === 1)
    const [row] = (await holdfast.list({ key: 'asking' })).sessions
    const [ask] = await asksOf('asking')
    await holdfast.session(row!.id).answer(ask!.id, 'allow')
    expect(await answer).toBe('open the door')
  })
})

async function asksOf(key: string) {
  const [row] = (await holdfast.list({ key })).sessions
  return row === undefined ? [] : holdfast.session(row.id).asks()
}

describe('one key', () => {
  it('has one session, however many come at once to a cold one (I1, I3)', async () => {
    const texts = Array.from({ length: 20 }, (_, index) => `message ${index}`)
    const replies = await Promise.all(texts.map((text) => say(client({ key: 'cold' }), text)))
    const told = replies.map((reply) => JSON.parse(reply) as { input: string; before: number })
    expect(told.map(({ input }) => input)).toEqual(texts)
    expect(told.map(({ before }) => before).toSorted((a, b) => a - b)).toEqual(
      texts.map((_, index) => index),
    )
    expect((await holdfast.list({ key: 'cold' })).sessions).toHaveLength(1)
  })

  it('does not make another wait', async () => {
    const held = say(client({ key: 'held' }), 'held', 'played')
    const strings = await puppet.turn('held')
    expect(await say(client({ key: 'free' }), 'at once', 'echo')).toBe('at once')
    strings.end('at last')
    expect(await held).toBe('at last')
  })
})

describe('a key that is busy too long', () => {
  let impatient: TestServer
  let counters: Holdfast['authority']['counters']

  beforeAll(async () => {
    const played: Agent = (turn, context) => {
      ran.push(turn.text)
      return puppet.agent(turn, context)
    }
    const limits = { waitMs: 100 }
    impatient = await serve({ agents: { played }, limits })
    counters = impatient.holdfast.authority.counters
  })
  afterAll(() => impatient.close())

  it('is 429 with a small Retry-After; nothing has happened (I11)', async () => {
    const { url } = impatient
    const first = say(client({ key: 'busy', url }), 'first', 'played')
    const strings = await puppet.turn('first')
    const second = say(client({ key: 'busy', url }), 'second', 'played')
    const refused = await second.catch((error) => error)
    expect(refused).toBeInstanceOf(OpenAI.RateLimitError)
    expect(refused).toMatchObject({ status: 429, code: 'session_busy', type: 'rate_limit_error' })
    expect(Number(refused.headers.get('retry-after'))).toBe(1)
    expect(Number(refused.headers.get('retry-after-ms'))).toBe(1_000)
    strings.end('done')
    await first
    expect(ran).toEqual(['first'])
  })

  it('is not waited for by who says so, or is stopped', async () => {
    const { url } = impatient
    const how = (busy: string) => ({
      headers: { 'x-session-busy': busy, 'x-session-wait-ms': '9000' },
    })
    const params = (content: string) => ({ model: 'played', messages: [user(content)] })
    const openai = client({ key: 'choosy', url })
    const first = openai.chat.completions.create(params('first')).catch((error) => error)
    await puppet.turn('first')
    const refused = openai.chat.completions.create(params('second'), how('reject'))
    await expect(refused).rejects.toBeInstanceOf(OpenAI.RateLimitError)
    const third = openai.chat.completions.create(params('third'), how('interrupt'))
    expect(await first).toMatchObject({ status: 409, code: 'turn_cancelled' })
    const strings = await puppet.turn('third')
    strings.end('instead')
    expect((await third)._request_id).toMatch(/^.+\/t\d+$/)
    expect(ran).toEqual(['first', 'third'])
    const wrong = openai.chat.completions.create(params('fourth'), how('politely'))
    await expect(wrong).rejects.toMatchObject({ status: 400, param: 'busy' })
  })

  it("is waited for by the client's own retry, which runs once", async () => {
    const { url } = impatient
    const first = say(client({ key: 'patient', url }), 'first', 'played')
    const strings = await puppet.turn('first')
    const refusedBefore = counters.turnsRefused
    const second = say(client({ key: 'patient', url, maxRetries: 5 }), 'second', 'played')
    await until(() => counters.turnsRefused > refusedBefore)
    strings.end('one')
    const next = await puppet.turn('second')
    next.end('two')
    expect(await Promise.all([first, second])).toEqual(['one', 'two'])
    expect(ran).toEqual(['first', 'second'])
  })
})

describe("the client's own retry after a lost reply", () => {
  it.each([
    ['with a key', 'lost'],
    ['without a key', undefined],
  ])('finds the turn that is over, %s', async (_, key) => {
    proxy.lose = 1
    const retrying = { url: proxied, maxRetries: 2, ...(key === undefined ? {} : { key }) }
    const reply = JSON.parse(await say(client(retrying), 'only once'))
    expect(reply).toEqual({ input: 'only once', before: 0 })
    expect([proxy.lose, ran]).toEqual([0, ['only once']])
  })

  it.each([
    ['with a key', 'cut'],
    ['without a key', undefined],
  ])('joins the turn that runs, %s', async (_, key) => {
    const retrying = { url: proxied, maxRetries: 2, ...(key === undefined ? {} : { key }) }
    const reply = say(client(retrying), 'still running', 'played')
    const strings = await puppet.turn('still running')
    proxy.cut()
    proxy.lose = 1
    strings.end('the only answer')
    expect(await reply).toBe('the only answer')
    expect(ran).toEqual(['still running'])
    proxy.lose = 0
  })

  it('has one place in the queue, also if it was cut off while it waited', async () => {
    const first = say(client({ key: 'queue' }), 'first', 'played')
    const strings = await puppet.turn('first')
    const second = say(client({ key: 'queue', url: proxied, maxRetries: 2 }), 'second', 'played')
    const attempts = (): number => proxy.requests
    const before = attempts()
    await until(() => attempts() > before)
    proxy.cut()
    await until(() => attempts() > before + 1)
    strings.end('one')
    const next = await puppet.turn('second')
    next.end('two')
    expect(await Promise.all([first, second])).toEqual(['one', 'two'])
    expect(ran).toEqual(['first', 'second'])
  })

  it('gets the whole stream of the turn again', async () => {
    proxy.lose = 1
    const stream = await client({
      url: proxied,
      maxRetries: 2,
      key: 'stream again',
    }).responses.create({ model: 'witness', input: 'streamed', stream: true })
    let text = ''
    for await (const event of stream)
      if (event.type === 'response.output_text.delta') text += event.delta
    expect(JSON.parse(text)).toEqual({ input: 'streamed', before: 0 })
    expect(ran).toEqual(['streamed'])
  })

  it('is no reason to merge two requests that say the same', async () => {
    const openai = client({ key: 'twice' })
    expect(JSON.parse(await say(openai, 'again')).before).toBe(0)
    expect(JSON.parse(await say(openai, 'again')).before).toBe(1)
    const [one, two] = await Promise.all([say(client(), 'same'), say(client(), 'same')])
    expect([one, two]).toEqual([one, one])
    expect(ran).toEqual(['again', 'again', 'same', 'same'])
  })

  it('joins the newest of two that said the same', async () => {
    const openai = client({ key: 'newest', url: proxied, maxRetries: 2 })
    await say(openai, 'same')
    proxy.lose = 1
    expect(JSON.parse(await say(openai, 'same')).before).toBe(1)
    expect(ran).toEqual(['same', 'same'])
  })
})

describe('many clients on a network that loses replies', () => {
  it('run every turn once, in order, and each gets its own reply', async () => {
    const seed = Math.trunc(Math.random() * 2 ** 32)
    const random = seeded(seed)
    proxy.isLost = () => random() < 0.2
    proxy.lose = 3
    const texts = Array.from({ length: 40 }, (_, index) => `message ${index}`)
    const replies = await Promise.all(
      texts.map((text, index) => {
        // Four sessions, and every fifth request is one of its own.
        const key = index % 5 === 4 ? {} : { key: `lossy ${index % 5}` }
        return say(client({ url: proxied, maxRetries: 10, ...key }), text)
      }),
    )
    proxy.isLost = () => false
    const told = replies.map((reply) => JSON.parse(reply) as { input: string; before: number })
    expect(
      told.map(({ input }) => input),
      `seed ${seed}`,
    ).toEqual(texts)
    expect(ran.toSorted(), `seed ${seed}`).toEqual(texts.toSorted())
    const first = told.filter((_, index) => index % 5 === 0).map(({ before }) => before)
    expect(
      first.toSorted((a, b) => a - b),
      `seed ${seed}`,
    ).toEqual(first.map((_, index) => index))
    expect(proxy.lost).toBeGreaterThanOrEqual(3)
  })
})

/** Numbers from 0 to 1 that are the same for the same seed. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

describe('an Idempotency-Key', () => {
  const once = (openai: OpenAI, text: string, idempotency: string) =>
    openai.chat.completions.create(
      { model: 'witness', messages: [user(text)] },
      { headers: { 'Idempotency-Key': idempotency } },
    )

  it.each([
    ['with a session key', 'named'],
    ['without one', undefined],
  ])('is one turn, however often it is sent, %s', async (_, key) => {
    const openai = client(key === undefined ? {} : { key })
    const answers = await Promise.all([1, 2, 3].map(() => once(openai, 'x', `i-${key}`)))
    const later = await once(openai, 'x', `i-${key}`)
    expect(new Set([...answers, later].map(({ id }) => id)).size).toBe(1)
    expect(ran).toEqual(['x'])
    const other = await once(openai, 'y', `i-${key}`).catch((error) => error)
    expect(other).toBeInstanceOf(OpenAI.UnprocessableEntityError)
    expect(other.code).toBe('idempotency_mismatch')
  })

  it("is its caller's own: another token with the same key is another request", async () => {
    const [one, other] = await Promise.all(
      ['a', 'b'].map((apiKey) => once(client({ apiKey }), 'z', 'shared')),
    )
    expect(one?.id).not.toBe(other?.id)
    expect(ran).toEqual(['z', 'z'])
  })
})

describe('responses', () => {
  it('are what the agent answers', async () => {
    const response = await client({ key: 'r' }).responses.create({ model: 'echo', input: 'hello' })
    expect(response).toMatchObject({
      object: 'response',
      status: 'completed',
      model: 'echo',
      output_text: 'hello',
      error: null,
      usage: { total_tokens: 0 },
    })
    const again = await client().responses.retrieve(response.id)
    expect(again).toMatchObject({ id: response.id, output_text: 'hello', status: 'completed' })
  })

  it('follow each other by previous_response_id, in one session', async () => {
    const openai = client()
    let previous: string | null = null
    for (const before of [0, 1, 2]) {
      const response: OpenAI.Responses.Response = await openai.responses.create({
        model: 'witness',
        input: `number ${before}`,
        previous_response_id: previous,
      })
      expect(JSON.parse(response.output_text)).toEqual({ input: `number ${before}`, before })
      previous = response.id
    }
  })

  it('do not branch: an earlier response cannot be followed again', async () => {
    const openai = client()
    const first = await openai.responses.create({ model: 'echo', input: 'one' })
    const follow = { model: 'echo', input: 'two', previous_response_id: first.id }
    await openai.responses.create(follow)
    const branched = await openai.responses.create(follow).catch((error) => error)
    expect(branched).toBeInstanceOf(OpenAI.BadRequestError)
    expect(branched.param).toBe('previous_response_id')
  })

  it('that follow another and lose their reply find their turn again', async () => {
    const openai = client({ url: proxied, maxRetries: 2 })
    const first = await openai.responses.create({ model: 'witness', input: 'one' })
    proxy.lose = 1
    const second = await openai.responses.create({
      model: 'witness',
      input: 'two',
      previous_response_id: first.id,
    })
    expect(JSON.parse(second.output_text).before).toBe(1)
    expect(ran).toEqual(['one', 'two'])
  })

  it('of a request that stores nothing cannot be followed', async () => {
    const response = await client().responses.create({ model: 'echo', input: 'x', store: false })
    const { id } = response
    const session = holdfast.session(/^resp_(.+)_t2$/.exec(id)?.[1] ?? '')
    await until(async () => (await session.state()).closed !== null)
    const params = { model: 'echo', input: 'y', previous_response_id: id }
    const refused = await client()
      .responses.create(params)
      .catch((error) => error)
    expect(refused).toBeInstanceOf(OpenAI.NotFoundError)
  })

  it('stream as typed events, numbered, message by message', async () => {
    const stream = client({ key: 'events' }).responses.stream({ model: 'thinker', input: 'done' })
    const types: string[] = []
    const numbers: number[] = []
    for await (const event of stream) {
      types.push(event.type.replace('response.', ''))
      numbers.push(event.sequence_number)
    }
    expect(numbers).toEqual([...numbers.keys()])
    const message = ['output_item.added', 'content_part.added', 'output_text.delta']
    const over = ['output_text.done', 'content_part.done', 'output_item.done']
    expect(types.filter((type, index) => type !== types[index - 1])).toEqual([
      'created',
      'in_progress',
      ...[...message, ...over],
      ...[...message, ...over],
      'completed',
    ])
    const final = await stream.finalResponse()
    expect(final.output_text).toBe('let me thinkdone')
    expect(final.output).toHaveLength(2)
  })

  it('run in the background, are looked at and cancelled', async () => {
    const openai = client({ key: 'background' })
    const params = { model: 'played', input: 'later', background: true }
    const response = await openai.responses.create(params)
    expect(['queued', 'in_progress']).toContain(response.status)
    await puppet.turn('later')
    expect((await openai.responses.retrieve(response.id)).status).toBe('in_progress')
    expect((await openai.responses.cancel(response.id)).status).toBe('cancelled')
  })
})

describe('conversations', () => {
  it('hold what was said in them', async () => {
    const openai = client()
    const conversation = await openai.conversations.create({ metadata: { topic: 'kelp' } })
    expect(await openai.conversations.retrieve(conversation.id)).toEqual(conversation)
    expect(conversation.metadata).toEqual({ topic: 'kelp' })
    for (const before of [0, 1]) {
      const input = `number ${before}`
      const response = await openai.responses.create({
        model: 'witness',
        conversation: before === 0 ? conversation.id : { id: conversation.id },
        input,
      })
      expect(JSON.parse(response.output_text)).toEqual({ input, before })
      expect(response.conversation?.id).toBe(conversation.id)
    }
    const items = await readAll(openai.conversations.items.list(conversation.id, { limit: 3 }))
    expect(items.map(({ role }) => role)).toEqual(['assistant', 'user', 'assistant', 'user'])
    const oldest = await openai.conversations.items.list(conversation.id, {
      order: 'asc',
      limit: 1,
    })
    expect(oldest.data[0]).toMatchObject({ content: [{ type: 'input_text', text: 'number 0' }] })
    const { sessions } = await holdfast.list({ key: conversation.id })
    expect(sessions[0]).toMatchObject({ agent: 'witness', labels: { topic: 'kelp' } })
  })

  it('are one session, however many begin them at once', async () => {
    const openai = client()
    const { id } = await openai.conversations.create()
    const responses = await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        openai.responses.create({ model: 'witness', conversation: id, input: `number ${index}` }),
      ),
    )
    const told = responses.map(({ output_text }) => JSON.parse(output_text) as { before: number })
    expect(told.map(({ before }) => before).toSorted((a, b) => a - b)).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
    ])
  })

  it('are gone once they are deleted', async () => {
    const openai = client()
    const { id } = await openai.conversations.create()
    await openai.responses.create({ model: 'echo', conversation: id, input: 'x' })
    expect(await openai.conversations.delete(id)).toMatchObject({ id, deleted: true })
    const gone = [
      () => openai.conversations.retrieve(id),
      () => openai.responses.create({ model: 'echo', conversation: id, input: 'y' }),
      () => openai.conversations.items.list(id),
      () => openai.conversations.retrieve('conv_never'),
    ]
    for (const call of gone) await expect(call()).rejects.toBeInstanceOf(OpenAI.NotFoundError)
    expect((await holdfast.list({ key: id, state: 'open' })).sessions).toEqual([])
  })
})

async function readAll<Item>(pages: AsyncIterable<Item>): Promise<any[]> {
  const all: Item[] = []
  for await (const item of pages) all.push(item)
  return all
}

describe('models', () => {
  it('are the agents', async () => {
    const names = (await readAll(client().models.list())).map(({ id }) => id)
    expect(names).toEqual([
      'witness',
      'plain',
      'thinker',
      'failing',
      'played',
      'echo',
      'slow',
      'ask',
    ])
    expect(await client().models.retrieve('echo')).toMatchObject({ id: 'echo', object: 'model' })
  })
})

describe('refusals', () => {
  it.each([
    ['a model that there is not', { model: 'gpt-4o' }, OpenAI.NotFoundError, 'model'],
    ['several choices', { n: 2 }, OpenAI.BadRequestError, 'n'],
    ['tools', { tools: [{ type: 'function' }] }, OpenAI.BadRequestError, 'tools'],
    [
      'JSON',
      { response_format: { type: 'json_object' } },
      OpenAI.BadRequestError,
      'response_format',
    ],
    ['no messages', { messages: [] }, OpenAI.BadRequestError, 'messages'],
    [
      'a last word of its own',
      { messages: [{ role: 'assistant', content: 'x' }] },
      OpenAI.BadRequestError,
      'messages',
    ],
    [
      'a picture',
      { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
      OpenAI.BadRequestError,
      'messages[0].content',
    ],
    [
      'a tool',
      { messages: [{ role: 'tool', content: 'x' }] },
      OpenAI.BadRequestError,
      'messages[0].role',
    ],
  ])('tell who asks for %s', async (_, change, type, param) => {
    const params = { model: 'echo', messages: [user('x')], ...change }
    const refused = await client()
      .chat.completions.create(params as never)
      .catch((error) => error)
    expect(refused).toBeInstanceOf(type)
    expect(refused.param).toBe(param)
    expect(refused.message.length).toBeGreaterThan(10)
  })

  it('tell that a key belongs to another agent, and not to try again', async () => {
    await say(client({ key: 'taken' }), 'x', 'echo')
    const refused = await say(client({ key: 'taken', maxRetries: 2 }), 'x').catch((error) => error)
    expect(refused).toBeInstanceOf(OpenAI.ConflictError)
    expect(refused.headers.get('x-should-retry')).toBe('false')
  })

  it('of a turn that fails have its error, and the turn ran once', async () => {
    const failed = await say(client({ maxRetries: 2 }), 'x', 'failing').catch((error) => error)
    expect(failed).toBeInstanceOf(OpenAI.InternalServerError)
    expect(failed).toMatchObject({ code: 'runner_failed', message: '500 out of ideas' })
    const params = { model: 'failing', messages: [user('x')], stream: true as const }
    const stream = await client().chat.completions.create(params)
    await expect(readAll(stream)).rejects.toMatchObject({ code: 'runner_failed' })
    const response = client().responses.stream({ model: 'failing', input: 'x' })
    expect(await response.finalResponse()).toMatchObject({
      status: 'failed',
      error: { code: 'runner_failed', message: 'out of ideas' },
    })
  })

  it('at a path that is not served are in the same form', async () => {
    const params = { model: 'echo', input: 'x' }
    const refused = await client()
      .embeddings.create(params)
      .catch((error) => error)
    expect(refused).toBeInstanceOf(OpenAI.NotFoundError)
    expect(refused.code).toBe('route_unknown')
  })

  it.each([
    ['no object', '[]'],
    ['no JSON', '{"model":'],
    ['nested without end', `{"messages":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
  ])('tell who sends a body that is %s', async (_, body) => {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(`${server.url}/v1/responses`, { method: 'POST', headers, body })
    expect([answer.status, await answer.json()]).toEqual([
      400,
      { error: expect.objectContaining({ code: 'bad_request', type: 'invalid_request_error' }) },
    ])
  })

  it.each([
    ['of an input that is too large', 1_200_000],
    ['of a body that is too large come before it is read, and', 12_000_000],
  ])('%s are 413', async (_, size) => {
    const refused = await say(client(), 'x'.repeat(size), 'echo').catch((error) => error)
    expect(refused).toMatchObject({ status: 413, code: 'body_too_large' })
  })

  it('are not given for a long history that a session with a memory does not look at', async () => {
    const content = 'x'.repeat(500_000)
    const past = Array.from({ length: 10 }, (__, at) => ({
      role: at % 2 === 0 ? ('user' as const) : ('assistant' as const),
      content,
    }))
    const messages = [...past, { role: 'user' as const, content: 'and now?' }]
    const { chat } = client({ key: 'long-history' })
    const { choices } = await chat.completions.create({ model: 'witness', messages })
    expect(JSON.parse(choices[0]?.message.content ?? '')).toMatchObject({ before: 0 })
    expect(ran).toEqual(['and now?'])
  })
})

describe('with tokens', () => {
  const scopes: Record<string, readonly Scope[]> = { talker: ['watch', 'talk'], watcher: ['watch'] }
  const tokens = { scopesOf: (token: string) => scopes[token] ?? null, close: () => undefined }
  let guarded: TestServer

  beforeAll(async () => {
    guarded = await serve({ tokens })
  })
  afterAll(() => guarded.close())

  const as = (apiKey: string) => client({ apiKey, url: guarded.url, maxRetries: 2 })

  it('the API key is one, good for what its scopes allow', async () => {
    expect(await say(as('talker'), 'x', 'echo')).toBe('x')
    await expect(say(as('nobody'), 'x', 'echo')).rejects.toBeInstanceOf(OpenAI.AuthenticationError)
    const refused = await say(as('watcher'), 'x', 'echo').catch((error) => error)
    expect(refused).toBeInstanceOf(OpenAI.PermissionDeniedError)
    expect(refused).toMatchObject({ code: 'forbidden', type: 'permission_error' })
    expect(await readAll(as('watcher').models.list())).toHaveLength(3)
    const { id } = await as('talker').conversations.create()
    await expect(as('talker').conversations.delete(id)).rejects.toMatchObject({ status: 403 })
  })

  it('a page of another origin is refused, in the same form', async () => {
    const headers = { origin: 'https://elsewhere.example' }
    const answer = await fetch(`${guarded.url}/v1/models`, { headers })
    expect([answer.status, await answer.json()]).toEqual([
      403,
      { error: expect.objectContaining({ code: 'origin_refused', param: null }) },
    ])
  })
})

describe('a server that stops without its Holdfast', () => {
  it('says so in a stream', async () => {
    const stopping = await serve({ agents: { played: puppet.agent } })
    const ask = { model: 'played', stream: true, messages: [{ role: 'user', content: 'stops' }] }
    const headers = { 'content-type': 'application/json' }
    const request = { method: 'POST', headers, body: JSON.stringify(ask) }
    const answer = await fetch(`${stopping.url}/v1/chat/completions`, request)
    const text = answer.text()
    await puppet.turn('stops')
    await stopping.close({ closeHoldfast: false })
    await stopping.holdfast.close()
    expect(await text).toMatch(/event: error\ndata: {"error":{.*"code":"draining".*}}\n\n$/)
  })
})

describe('after a new start of the server', () => {
  let folder = ''
  let current: TestServer

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-openai-'))
  })
  afterEach(() => current.close())
  afterAll(() => rmSync(folder, { recursive: true }))

  async function start(name: string, port = 0): Promise<void> {
    const store = `sqlite:${join(folder, name)}.db`
    const played: Agent = (turn, context) => {
      ran.push(turn.text)
      return puppet.agent(turn, context)
    }
    current = await serve({ store, agents: { witness, played }, port })
  }

  it.each([
    ['with a key', 'kept'],
    ['without a key', undefined],
  ])('a retry finds the turn whose reply was lost, %s', async (_, key) => {
    await start(`lost-${key}`)
    const { port } = current
    const lossy = new CuttingProxy(port)
    const url = await lossy.listen()
    lossy.lose = 1
    lossy.onLost = () => void current.close().then(() => start(`lost-${key}`, port))
    const reply = await say(client({ url, maxRetries: 8, ...(key && { key }) }), 'just once')
    expect(JSON.parse(reply)).toEqual({ input: 'just once', before: 0 })
    expect([lossy.lost, ran]).toEqual([1, ['just once']])
    await lossy.close()
  })

  it.each([
    ['with a key', 'kept'],
    ['without a key', undefined],
  ])('a retry learns that its turn was interrupted, %s', async (_, key) => {
    await start(`cut-${key}`)
    const { port } = current
    const lossy = new CuttingProxy(port)
    const url = await lossy.listen()
    const asked = say(client({ url, maxRetries: 8, ...(key && { key }) }), 'cut short', 'played')
    const failed = asked.catch((error: unknown) => error)
    await puppet.turn('cut short')
    lossy.cut()
    await current.close()
    await start(`cut-${key}`, port)
    expect(await failed).toMatchObject({ status: 500, code: 'turn_interrupted' })
    expect(ran).toEqual(['cut short'])
    await lossy.close()
  })

  it.each([
    ['with a key', 'kept'],
    ['without a key', undefined],
  ])('a retry finds a turn that had run for long, %s', async (_, key) => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      await start(`long-${key}`)
      const { port, url } = current
      const first = client({ url, maxRetries: 0, ...(key && { key }) })
      const left = new AbortController()
      const ask = { model: 'played', messages: [{ role: 'user' as const, content: 'long' }] }
      const asked = first.chat.completions.create(ask, { signal: left.signal })
      const gone = asked.catch(() => 'gone')
      await puppet.turn('long')
      vi.setSystemTime(Date.now() + 50 * 60_000)
      left.abort()
      expect(await gone).toBe('gone')
      await current.close()
      await start(`long-${key}`, port)
      const headers = { 'x-stainless-retry-count': '1' }
      const retried = await first.chat.completions.create(ask, { headers }).catch((error) => error)
      expect(retried).toMatchObject({ status: 500, code: 'turn_interrupted' })
      expect(ran).toEqual(['long'])
    } finally {
      vi.useRealTimers()
    }
  })
})
