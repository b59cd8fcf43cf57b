/** Items, conversations that a client fills, deletion and resumed streams of the OpenAI door. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Agent } from 'holdfast'
import { CuttingProxy } from '../support/cutting-proxy.ts'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { ServerProcess } from '../support/server-process.ts'
import { serve, type TestServer } from '../support/server.ts'

let server: TestServer
let puppet = new Puppet()

/** Answers with what it was given and how much it remembers. */
const witness: Agent = async ({ input }, context) => {
  let before = 0
  for await (const { role } of context.history()) if (role === 'user') before += 1
  return JSON.stringify({ input, before })
}

/** Two messages in one turn. */
const thinker: Agent = async function* ({ text }) {
  yield { type: 'message', text: 'let me think' }
  yield text
}

beforeAll(async () => {
  const played: Agent = (turn, context) => puppet.agent(turn, context)
  server = await serve({ agents: { witness, thinker, played, ...builtinAgents } })
})
afterEach(() => {
  puppet = new Puppet()
})
afterAll(() => server.close())

function client({ url = server.url, ...options }: { url?: string; [name: string]: unknown } = {}) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, ...options })
}

const keyed = (key: string) => client({ defaultHeaders: { 'x-session-key': key } })

const user = (content: string) => ({ type: 'message', role: 'user', content }) as const

const refer = (id: string | undefined) => ({ type: 'item_reference', id: id ?? '' }) as const

const refusal = (call: Promise<unknown>): Promise<any> => call.catch((error: unknown) => error)

async function heard(response: Promise<OpenAI.Responses.Response>): Promise<any> {
  return JSON.parse((await response).output_text)
}

async function textsOf(items: AsyncIterable<unknown>): Promise<string[]> {
  const texts: string[] = []
  for await (const { content } of items as AsyncIterable<any>) texts.push(content[0].text)
  return texts
}

describe('an item reference', () => {
  it('stands for the message that it names', async () => {
    const { responses } = client()
    const { output } = await responses.create({ model: 'thinker', input: 'done' })
    const input = [user('hi'), ...output.map(({ id }) => refer(id)), user('and?')]
    const { input: given } = await heard(responses.create({ model: 'witness', input }))
    expect(given.messages).toEqual([
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'let me think' },
      { role: 'assistant', content: 'done' },
      { role: 'user', content: 'and?' },
    ])
  })

  it('to what the session of the request knows is not said again', async () => {
    const { responses, conversations } = client()
    const first = await responses.create({ model: 'witness', input: 'one' })
    const follow = {
      previous_response_id: first.id,
      input: [refer(first.output[0]?.id), user('b')],
    }
    expect(await heard(responses.create({ model: 'witness', ...follow }))).toEqual({
      input: 'b',
      before: 1,
    })
    const { id } = await conversations.create()
    const said = await responses.create({ model: 'witness', conversation: id, input: 'one' })
    const input = [refer(said.output[0]?.id), refer(first.output[0]?.id), user('c')]
    const { input: given } = await heard(
      responses.create({ model: 'witness', conversation: id, input }),
    )
    expect(given.messages).toHaveLength(2)
  })

  it.each([
    ['no id of ours', 'rs_123'],
    ['of a session that there is not', 'msg_nowhere_t2_0'],
    ['of a turn that there is not', 'msg_SESSION_t9_0'],
    ['of a message that was not said', 'msg_SESSION_t2_7'],
    ['of a note that there is not', 'msg_SESSION_n1_0'],
  ])('that is %s is refused as unknown', async (_, form) => {
    const { responses } = client()
    const made = await responses.create({ model: 'echo', input: 'x' })
    const [, session = ''] = /^resp_(.+)_t2$/.exec(made.id) ?? []
    const id = form.replace('SESSION', session)
    const input = [user('hi'), refer(id), user('x')]
    const error = await refusal(responses.create({ model: 'echo', input }))
    expect(error).toBeInstanceOf(OpenAI.NotFoundError)
    expect(error).toMatchObject({ param: 'input[1]', message: `404 there is no item ${id}` })
  })

  it('to a session that is closed or deleted is refused as unknown', async () => {
    const { responses, conversations } = client()
    const stored = await responses.create({ model: 'echo', input: 'x' })
    const { id } = await conversations.create()
    const said = await responses.create({ model: 'echo', conversation: id, input: 'x' })
    await responses.delete(stored.id)
    await conversations.delete(id)
    for (const { output } of [stored, said]) {
      const input = [refer(output[0]?.id), user('x')]
      expect(await refusal(responses.create({ model: 'echo', input }))).toMatchObject({
        status: 404,
      })
    }
  })
})

it('refuses a request with more item references than are looked up', async () => {
  const input = [...Array.from({ length: 1_001 }, () => refer('msg_x_t2_0')), user('x')]
  const error = await refusal(client().responses.create({ model: 'echo', input }))
  expect(error).toMatchObject({ status: 400, param: 'input' })
})

describe('with a session key', () => {
  it('a response of its session may be followed, and no other', async () => {
    const { responses } = keyed('chained')
    const { id } = await responses.create({ model: 'witness', input: 'one' })
    const next = { model: 'witness', input: 'two', previous_response_id: id }
    expect((await heard(responses.create(next))).before).toBe(1)
    const foreign = refusal(keyed('elsewhere').responses.create(next))
    expect(await foreign).toMatchObject({ status: 400, param: 'previous_response_id' })
  })

  it('history is not looked at, whatever it holds', async () => {
    const history = [
      { type: 'function_call', name: 'look', call_id: 'c', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c', output: 'x' },
      refer('rs_1'),
      'nonsense',
    ]
    const input = [...history, user('only this')] as never
    const response = keyed('history').responses.create({ model: 'witness', input })
    expect(await heard(response)).toEqual({ input: 'only this', before: 0 })
  })
})

describe('what was said', () => {
  it('in several parts has each on a line of its own', async () => {
    const parts = ['one', 'two'].map((text) => ({ type: 'input_text' as const, text }))
    const input = [{ role: 'user' as const, content: parts }]
    const { responses, chat } = client()
    expect(await heard(responses.create({ model: 'witness', input }))).toMatchObject({
      input: 'one\ntwo',
    })
    const content = ['one', 'two'].map((text) => ({ type: 'text' as const, text }))
    const messages = [{ role: 'user' as const, content }]
    const { choices } = await chat.completions.create({ model: 'echo', messages })
    expect(choices[0]?.message.content).toBe('one\ntwo')
  })

  it('after another response is all told, not only the last of it', async () => {
    const { responses } = client()
    const { id } = await responses.create({ model: 'witness', input: 'one' })
    const input = [user('two'), user('three')]
    const next = { model: 'witness', previous_response_id: id, input }
    expect((await heard(responses.create(next))).input.text).toBe('User: two\n\nUser: three')
  })
})

describe('tools', () => {
  const call = { id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{}' } }
  const calling = { role: 'assistant', content: null, tool_calls: [call] }
  const result = { role: 'tool', tool_call_id: 'c1', content: 'sun' }
  const last = { role: 'user', content: 'x' }

  it.each([
    ['a call in the history', {}, [calling, last], 'messages[0]'],
    ['a result at the end', { 'x-session-key': 'tools' }, [calling, result], 'messages[1].role'],
  ])('are named in the refusal of %s', async (_, headers, messages, param) => {
    const { chat } = client({ defaultHeaders: headers })
    const params = { model: 'echo', messages } as never
    const error = await refusal(chat.completions.create(params))
    expect(error).toMatchObject({ status: 400, param })
    expect(error.message).toContain('get_weather')
  })

  it.each([
    ['function_call', { name: 'get_weather', arguments: '{}' }, 'get_weather'],
    ['web_search_call', {}, 'web_search_call'],
    ['reasoning', { summary: [] }, 'reasoning'],
  ])('are named in the refusal of an item %s', async (type, fields, name) => {
    const input = [{ type, id: 'x', call_id: 'c', ...fields }, user('x')] as never
    const error = await refusal(client().responses.create({ model: 'echo', input }))
    expect(error).toMatchObject({ status: 400, param: 'input[0]' })
    expect(error.message).toContain(name)
  })

  it('that a client offers are named', async () => {
    const tools = [{ type: 'function', name: 'get_weather', parameters: {}, strict: true }] as never
    const params = { model: 'echo', input: 'x', tools }
    const error = await refusal(client().responses.create(params))
    expect(error).toMatchObject({ status: 400, param: 'tools' })
    expect(error.message).toContain('get_weather')
  })
})

it("takes no offence at parameters of others, like Azure's version", async () => {
  const { responses, models, conversations } = client({ defaultQuery: { 'api-version': '2025' } })
  const { id } = await responses.create({ model: 'echo', input: 'x' })
  const include = ['message.output_text.logprobs', 'reasoning.encrypted_content'] as never
  expect(await responses.retrieve(id, { include })).toMatchObject({ id })
  expect((await models.list()).data.length).toBeGreaterThan(0)
  const conversation = await conversations.create({})
  await conversations.items.list(conversation.id, { include, limit: 5 })
  const wrong = refusal(conversations.items.list(conversation.id, { limit: 500 }))
  expect(await wrong).toMatchObject({ status: 400, param: 'limit' })
})

describe('input items', () => {
  it('are what the turn was given', async () => {
    const { responses } = client()
    const first = await responses.create({ model: 'echo', input: 'alone' })
    expect(await textsOf(responses.inputItems.list(first.id))).toEqual(['alone'])
    const input = ['one', 'two', 'three'].map(user)
    const { id } = await responses.create({ model: 'echo', input })
    expect(await textsOf(responses.inputItems.list(id, { limit: 1 }))).toEqual([
      'three',
      'two',
      'one',
    ])
    const oldest = responses.inputItems.list(id, { order: 'asc', limit: 2 })
    expect(await textsOf(oldest)).toEqual(['one', 'two', 'three'])
    const item = (await oldest).data[0]?.id
    const again = [refer(item), user('x')]
    const { input: given } = await heard(responses.create({ model: 'witness', input: again }))
    expect(given.messages[0]).toEqual({ role: 'user', content: 'one' })
  })
})

describe('a deleted response', () => {
  it('is gone for every route, and its session is erased with the last', async () => {
    const { responses } = client()
    const first = await responses.create({ model: 'echo', input: 'secret' })
    const next = { model: 'echo', input: 'more', previous_response_id: first.id }
    const second = await responses.create(next)
    await responses.delete(first.id)
    for (const call of [
      () => responses.retrieve(first.id),
      () => responses.cancel(first.id),
      () => responses.delete(first.id),
      () => responses.inputItems.list(first.id),
      () => responses.create(next),
    ]) {
      expect(await refusal(call())).toBeInstanceOf(OpenAI.NotFoundError)
    }
    expect(await responses.retrieve(second.id)).toMatchObject({ output_text: 'more' })
    await responses.delete(second.id)
    const [, session = ''] = /^resp_(.+)_t\d+$/.exec(first.id) ?? []
    const log = server.holdfast.session(session).read(0, 10)
    await expect(log).rejects.toMatchObject({ code: 'session_erased' })
    // The same request in the same minute is a new one.
    expect(await responses.create({ model: 'echo', input: 'secret' })).toMatchObject({
      output_text: 'secret',
    })
  })

  it('of a session with a key leaves the session as it is', async () => {
    const { responses } = keyed('deleting')
    const { id } = await responses.create({ model: 'witness', input: 'one' })
    await responses.delete(id)
    expect(await refusal(responses.retrieve(id))).toMatchObject({ status: 404 })
    expect((await heard(responses.create({ model: 'witness', input: 'two' }))).before).toBe(1)
  })

  it('must be over', async () => {
    const { responses } = keyed('running')
    const { id } = await responses.create({ model: 'played', input: 'go', background: true })
    const strings = await puppet.turn('go')
    expect(await refusal(responses.delete(id))).toMatchObject({ status: 400 })
    strings.end('done')
    await until(async () => (await responses.retrieve(id)).status === 'completed')
    await responses.delete(id)
  })
})

describe('items that a client adds to a conversation', () => {
  it('are listed, read, and taken out again', async () => {
    const { conversations } = client()
    const { id } = await conversations.create({ items: [user('one')] })
    const answer = { role: 'assistant', content: [{ type: 'output_text', text: 'two' }] }
    const added = await conversations.items.create(id, { items: [answer as never, user('three')] })
    expect(added).toMatchObject({ object: 'list', has_more: false, last_id: added.data[1]?.id })
    const listed = () => textsOf(conversations.items.list(id, { limit: 2 }))
    expect(await listed()).toEqual(['three', 'two', 'one'])
    const [two = { id: '' }] = added.data as { id: string }[]
    const named = { conversation_id: id }
    expect(await conversations.items.retrieve(two.id, named)).toEqual(added.data[0])
    expect(await conversations.items.delete(two.id, named)).toMatchObject({ id })
    expect(await listed()).toEqual(['three', 'one'])
    for (const call of [
      () => conversations.items.retrieve(two.id, named),
      () => conversations.items.delete(two.id, named),
      () => conversations.items.retrieve('msg_other_n2_0', named),
    ]) {
      expect(await refusal(call())).toBeInstanceOf(OpenAI.NotFoundError)
    }
    const page = await conversations.items.list(id, { order: 'asc', after: two.id })
    expect(page.data).toHaveLength(1)
  })

  it('are told to the agent with the first turn, and stay from then on', async () => {
    const { conversations, responses } = client()
    const { id } = await conversations.create({ items: [user('one'), user('two')] })
    const named = { conversation_id: id }
    const [newest = { id: '' }] = (await conversations.items.list(id)).data as { id: string }[]
    await conversations.items.delete(newest.id, named)
    const ask = { model: 'witness', conversation: id, input: 'three' }
    const { input } = await heard(responses.create(ask))
    expect(input.text).toBe('User: one\n\nUser: three')
    expect(await heard(responses.create({ ...ask, input: 'four' }))).toEqual({
      input: 'four',
      before: 1,
    })
    const texts = await textsOf(conversations.items.list(id, { order: 'asc' }))
    expect([texts.length, texts[0], texts[1], texts[3]]).toEqual([5, 'one', 'three', 'four'])
    const [oldest = { id: '' }] = (await conversations.items.list(id, { order: 'asc' })).data as {
      id: string
    }[]
    expect(await refusal(conversations.items.delete(oldest.id, named))).toMatchObject({
      status: 400,
      param: 'item_id',
    })
    const late = conversations.items.create(id, { items: [user('late')] })
    expect(await refusal(late)).toMatchObject({ status: 400, param: 'items' })
  })

  it('are told once, and added once, to a request whose reply was lost', async () => {
    const proxy = new CuttingProxy(server.port)
    const url = await proxy.listen()
    const { conversations, responses } = client({ url, maxRetries: 2 })
    const { id } = await conversations.create()
    proxy.lose = 1
    await conversations.items.create(id, { items: [user('one')] })
    expect(await textsOf(conversations.items.list(id))).toEqual(['one'])
    proxy.lose = 1
    const ask = { model: 'witness', conversation: id, input: 'two' }
    expect(await heard(responses.create(ask))).toMatchObject({ before: 0 })
    expect(await textsOf(conversations.items.list(id))).toHaveLength(3)
    expect(proxy.lost).toBe(2)
    await proxy.close()
  })

  it.each([
    ['a call', { type: 'function_call', name: 'f', call_id: 'c', arguments: '{}' }],
    ['a picture', { role: 'user', content: [{ type: 'input_image' }] }],
    ['nothing', null],
  ])('are messages: %s is refused', async (_, item) => {
    const { conversations } = client()
    const items = [item] as never
    expect(await refusal(conversations.create({ items }))).toMatchObject({ status: 400 })
    const { id } = await conversations.create()
    const error = await refusal(conversations.items.create(id, { items }))
    expect(error.status).toBe(400)
    expect(error.param).toContain('items[0]')
  })
})

type Numbered = { readonly sequence_number: number; readonly type: string; readonly delta?: string }

async function follow(openai: OpenAI, id: string, after?: number): Promise<Numbered[]> {
  const cursor = after === undefined ? {} : { starting_after: after }
  const stream = await openai.responses.retrieve(id, { stream: true, ...cursor })
  const events: Numbered[] = []
  for await (const event of stream) events.push(event)
  return events
}

const saidIn = (events: readonly Numbered[]) => events.map(({ delta = '' }) => delta).join('')

/** Begins to stream a response, reads until so much was said, and goes away. */
async function readSome(openai: OpenAI, params: { model: string; input: string }, text: string) {
  const leave = new AbortController()
  const stream = await openai.responses.create({ ...params, stream: true }, leave)
  let id = ''
  const seen: Numbered[] = []
  for await (const event of stream) {
    if (event.type === 'response.created') id = event.response.id
    seen.push(event)
    if (saidIn(seen) === text) break
  }
  leave.abort()
  return { id, seen, after: seen.at(-1)?.sequence_number ?? 0 }
}

describe('a stream that is taken up again', () => {
  it('has the same numbers from wherever it begins', async () => {
    const openai = keyed('resumed')
    const first: Numbered[] = []
    const params = { model: 'thinker', input: 'done', stream: true } as const
    for await (const event of await openai.responses.create(params)) first.push(event)
    const id = (first[0] as { response?: { id: string } }).response?.id ?? ''
    expect(await follow(openai, id)).toMatchObject(
      first.map(({ sequence_number, type }) => ({ sequence_number, type })),
    )
    const helper = openai.responses.stream({ response_id: id, starting_after: 9 })
    expect(await helper.finalResponse()).toMatchObject({ id, output_text: 'let me thinkdone' })
    expect(first.map(({ sequence_number: n }) => n)).toEqual([...first.keys()])
    expect(saidIn(first)).toBe('let me thinkdone')
    for (let after = 0; after < first.length - 1; after += 1) {
      const events = await follow(openai, id, after)
      expect(events).toEqual(first.slice(after + 1))
    }
  })

  it('goes on with what is said while it is read', async () => {
    const openai = keyed('live')
    const reading = readSome(openai, { model: 'played', input: 'go' }, 'one two ')
    const strings = await puppet.turn('go')
    strings.say('one ')
    strings.say('two ')
    const { id, after } = await reading
    strings.say('three ')
    const following = follow(openai, id, after)
    strings.say('four')
    strings.end()
    const events = await following
    expect(saidIn(events)).toBe('three four')
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(
      events.map((_, index) => after + 1 + index),
    )
    expect(events.at(-1)?.type).toBe('response.completed')
  })

  it('ends as it did, also after kill -9', async () => {
    const data = mkdtempSync(join(tmpdir(), 'holdfast-resumed-'))
    const start = () => ServerProcess.start({ data })
    let started = await start()
    try {
      const done = client({ url: started.url })
      const whole = await readSome(done, { model: 'echo', input: 'whole' }, 'whole')
      const before = await follow(done, whole.id)
      const cut = await readSome(done, { model: 'slow', input: 'a b c d e f g' }, 'a b ')
      await started.kill()
      started = await start()
      const openai = client({ url: started.url })
      expect(await follow(openai, whole.id)).toEqual(before)
      expect(await follow(openai, whole.id, whole.after)).toEqual(
        before.filter(({ sequence_number }) => sequence_number > whole.after),
      )
      const [end] = (await follow(openai, cut.id, cut.after)).toReversed()
      expect(end).toMatchObject({
        type: 'response.failed',
        response: { status: 'failed', error: { code: 'turn_interrupted' } },
      })
      expect(end?.sequence_number).toBeGreaterThan(cut.after)
    } finally {
      await started.stop()
      rmSync(data, { recursive: true })
    }
  })
})
