/** The runner for models behind an OpenAI-compatible API, against a model that can misbehave. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openaiRunner, openHoldfast, type Holdfast, type OpenAiOptions } from 'holdfast'
import { startStubOpenAi, type StubOpenAi } from '../support/stub-openai.ts'

const KEY = 'sk-very-secret-0123456789'
let model: StubOpenAi
let holdfast: Holdfast

async function open(options: Partial<OpenAiOptions> = {}): Promise<void> {
  const upstream = openaiRunner({ baseUrl: model.url, model: 'stub-model', ...options })
  holdfast = await openHoldfast({ store: 'memory:', agents: { upstream } })
}

beforeEach(async () => {
  model = await startStubOpenAi()
  process.env['STUB_KEY'] = KEY
})

afterEach(async () => {
  await holdfast.close()
  await model.close()
  delete process.env['STUB_KEY']
})

describe('a turn with a model', () => {
  it('streams its answer, with the log as the memory', async () => {
    await open({ system: 'be kind', apiKeyEnv: 'STUB_KEY', parameters: { temperature: 0 } })
    const session = await holdfast.resolve({ key: 'a' })
    const parts: string[] = []
    for await (const part of session.turn('hello there')) parts.push(part)
    expect(parts).toEqual(['seen ', '1: ', 'hello ', 'there'])
    expect((await session.turn('again')).reply?.text).toBe('seen 2: again')
    const { headers, body } = model.requests[1]!
    expect(headers.authorization).toBe(`Bearer ${KEY}`)
    expect(body).toMatchObject({ model: 'stub-model', stream: true, temperature: 0 })
    expect(body.messages).toEqual([
      { role: 'system', content: 'be kind' },
      { role: 'user', content: 'hello there' },
      { role: 'assistant', content: 'seen 1: hello there' },
      { role: 'user', content: 'again' },
    ])
  })

  it('passes on a conversation or instructions that came with the request', async () => {
    await open()
    const session = await holdfast.resolve({ key: 'a' })
    await session.turn({ text: 'hi', instructions: 'be short' })
    const messages = [
      { role: 'system', content: 'be kind' },
      { role: 'user', content: 'one' },
      { role: 'assistant', content: 'two' },
      { role: 'user', content: 'three' },
    ]
    const other = await holdfast.resolve({ key: 'b' })
    await other.turn({ text: 'all of it', messages })
    await other.turn({ text: 'plain', messages: [{ role: 'tool', content: 1 }] })
    const sent = model.requests.map(({ body }) => body.messages)
    expect(sent[0]).toEqual([
      { role: 'system', content: 'be short' },
      { role: 'user', content: 'hi' },
    ])
    expect(sent[1]).toEqual(messages)
    expect(sent[2]?.at(-1)).toEqual({ role: 'user', content: 'plain' })
  })

  it('sends images to the model, those of earlier turns too', async () => {
    await open()
    model.answer = () => ({ text: 'ok' })
    const session = await holdfast.resolve({ key: 'a' })
    const image = { type: 'image', mediaType: 'image/png', data: Buffer.from('png') } as const
    await session.turn({ text: 'look', parts: [image] })
    await session.turn('and now?')
    const messages = [{ role: 'user', content: 'before' }]
    await session.turn({ text: 'look', messages, parts: [image] })
    const url = `data:image/png;base64,${Buffer.from('png').toString('base64')}`
    const look = [
      { type: 'text', text: 'look' },
      { type: 'image_url', image_url: { url } },
    ]
    const sent = model.requests.map(({ body }) => body.messages.map(({ content }: any) => content))
    expect(sent[0]).toEqual([look])
    expect(sent[1]).toEqual([look, 'ok', 'and now?'])
    expect(sent[2]?.at(-1)).toEqual([{ type: 'text', text: 'before' }, look[1]])
    const file = { type: 'file', name: 'a', mediaType: 'text/plain', data: image.data } as const
    await expect(session.turn({ parts: [file] })).rejects.toMatchObject({
      code: 'input_unsupported',
    })
  })

  it('sends no images to a model that takes none', async () => {
    await open({ images: false })
    const session = await holdfast.resolve({ key: 'a' })
    const image = { type: 'image', mediaType: 'image/png', data: Buffer.from('png') } as const
    const refused = session.turn({ parts: [image] })
    await expect(refused).rejects.toMatchObject({ code: 'input_unsupported' })
    expect(model.requests).toEqual([])
  })

  it('is given instructions and a model that the operator allows, and can be forked', async () => {
    await open({ system: 'be kind', models: ['large-model'] })
    const settings = { instructions: 'be short', model: 'large-model' }
    const session = await holdfast.resolve({ key: 'a', settings })
    await session.turn('one')
    await session.turn('two', { settings: { model: 'stub-model' } })
    const other = session.turn('three', { settings: { model: 'other' } })
    await expect(other).rejects.toMatchObject({ code: 'invalid_field' })
    const fork = await holdfast.fork(session.id, { turn: 't2' })
    await fork.turn('again')
    const sent = model.requests.map(({ body }) => [body.model, body.messages.length])
    expect(sent).toEqual([
      ['large-model', 3],
      ['stub-model', 5],
      ['large-model', 5],
    ])
    expect(model.requests[0]!.body.messages.slice(0, 2)).toEqual([
      { role: 'system', content: 'be kind' },
      { role: 'system', content: 'be short' },
    ])
    const { usage } = await session.state()
    expect(usage).toMatchObject({ inputTokens: 20, outputTokens: 10 })
  })

  it('records what it cost, and an end before the end', async () => {
    await open()
    model.answer = () => ({ text: 'cut', finish: 'length' })
    const session = await holdfast.resolve({ key: 'a' })
    expect(await session.turn('hello')).toMatchObject({ state: 'done', reply: { text: 'cut' } })
    const { events } = await session.read(0, 100)
    const activities = events
      .map(({ body }) => JSON.parse(body))
      .filter(({ type }) => type === 'turn.activity')
      .map(({ kind, data }) => ({ kind, data }))
    expect(activities).toEqual([
      {
        kind: 'usage',
        data: { inputTokens: 10, outputTokens: 5 },
      },
      { kind: 'stop', data: { reason: 'length' } },
    ])
  })

  it.each([
    [{ historyMax: 3 }, ['three', 'ok', 'four']],
    [{ historyCharsMax: 6 }, ['four']],
    [{ historyCharsMax: 8 }, ['three', 'ok', 'four']],
  ])('sends no more of the past than %j', async (options, expected) => {
    await open(options)
    const session = await holdfast.resolve({ key: 'a' })
    model.answer = () => ({ text: 'ok' })
    for (const text of ['one', 'two', 'three', 'four']) await session.turn(text)
    const { messages } = model.requests[3]!.body
    expect(messages.map(({ content }: any) => content as string)).toEqual(expected)
  })

  it('takes an answer that comes as a whole, and leaves out what is not wanted', async () => {
    await open({ parameters: { stream_options: null } })
    model.answer = () => (response) => {
      response.setHeader('content-type', 'application/json')
      const message = { role: 'assistant', content: 'whole' }
      response.end(JSON.stringify({ choices: [{ message, finish_reason: 'stop' }] }))
    }
    const session = await holdfast.resolve({ key: 'a' })
    expect((await session.turn('hello')).reply?.text).toBe('whole')
    expect(model.requests[0]!.body).not.toHaveProperty('stream_options')
  })

  it('lets go of the model when it is cancelled', async () => {
    await open()
    let gone!: () => void
    const hungUp = new Promise<void>((resolve) => {
      gone = resolve
    })
    model.answer = () => (response) => {
      response.write('data: {"choices":[{"delta":{"content":"partly"}}]}\n\n')
      response.once('close', gone)
    }
    const session = await holdfast.resolve({ key: 'a' })
    const turn = session.turn('hello')
    for await (const part of turn) if (part === 'partly') break
    await session.cancelTurn((await session.state()).running!.id)
    expect(await turn).toMatchObject({ state: 'cancelled', reply: { text: 'partly' } })
    await hungUp
    model.answer = ({ users }) => ({ text: `${users.length}` })
    expect((await session.turn('next')).reply?.text).toBe('2')
  })
})

describe('a model that fails', () => {
  const fails = async (options: Partial<OpenAiOptions> = {}): Promise<string> => {
    await open({ apiKeyEnv: 'STUB_KEY', ...options })
    const session = await holdfast.resolve({ key: 'a' })
    const turn = await session.turn('hello')
    expect(turn).toMatchObject({ state: 'failed', error: { code: 'runner_failed' } })
    const { events } = await session.read(0, 100)
    expect(JSON.stringify(events)).not.toContain(KEY)
    return turn.error!.message
  }
  const answers = (status: number, body: string): void => {
    model.answer = () => (response) => response.writeHead(status).end(body)
  }

  it('says what it was told, without the key', async () => {
    answers(401, JSON.stringify({ error: { message: `Incorrect API key provided: ${KEY}.` } }))
    expect(await fails()).toBe(
      "the model's server answered 401: Incorrect API key provided: [key].",
    )
  })

  it.each([
    [429, '{"error":"slow down"}', 'answered 429: slow down'],
    [500, 'x'.repeat(100_000), `answered 500: ${'x'.repeat(400)}`],
    [200, 'data: {"error":{"message":"no GPU left"}}\n\n', 'reports: no GPU left'],
    [200, 'data: nonsense\n\n', 'something that is no JSON'],
    [200, 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', 'was cut off before its end'],
    [200, `data: ${'x'.repeat(2_000_000)}`, 'a line of more than'],
    [302, '', 'cannot be reached'],
  ])('with %i and %.40s is told as such', async (status, body, message) => {
    model.answer = () => (response) => {
      if (status === 302) response.setHeader('location', 'http://127.0.0.1:1/elsewhere')
      response.writeHead(status).end(body)
    }
    expect(await fails()).toContain(message)
  })

  it('by breaking off in the middle is told as such', async () => {
    model.answer = () => (response) => {
      response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', () => response.destroy())
    }
    expect(await fails()).toMatch(/cannot be reached, or broke off: UND_ERR_SOCKET/)
  })

  it.each([
    ['at the beginning', { startMs: 50 }, () => undefined],
    [
      'in the middle',
      { pauseMs: 50 },
      (response: any) => response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n'),
    ],
  ])('by silence %s is given up', async (_, options, act) => {
    model.answer = () => act
    expect(await fails(options)).toBe("the model's server sent nothing for 50 ms")
  })

  it('by not being there, or for want of a key, is told as such', async () => {
    const baseUrl = model.url
    await model.close()
    expect(await fails({ baseUrl })).toMatch(/cannot be reached, or broke off: ECONNREFUSED/)
    await holdfast.close()
    delete process.env['STUB_KEY']
    expect(await fails()).toMatch(/variable STUB_KEY, which should contain a key, is not set/)
  })
})

it.each(['ftp://host', 'nonsense', 'https://me:secret@host/v1'])(
  'the address %s is refused at once',
  async (baseUrl) => {
    await open()
    expect(() => openaiRunner({ baseUrl, model: 'm' })).toThrow(
      expect.objectContaining({ code: 'invalid_field' }),
    )
  },
)
