/** What a turn has said and shown is kept when it is cut short, whatever cuts it. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { openHoldfast, type Agent, type Holdfast, type SessionEvent } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ServerProcess } from '../support/server-process.ts'
import { gate, until } from '../support/gate.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-checkpoints-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const LIMITS = { checkpointMs: 5 }

/** Says two things, and then nothing until it is told to stop. */
const stuck: Agent = async function* (_, { signal }) {
  yield 'one '
  yield 'two'
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
}

async function logOf(hold: Holdfast, id: string): Promise<readonly SessionEvent[]> {
  const { events } = await hold.session(id).read(0, 256)
  return events.map(({ body }) => JSON.parse(body) as SessionEvent)
}

function outputs(log: readonly SessionEvent[]): string {
  return log.flatMap((event) => (event.type === 'turn.output' ? event.text : [])).join('')
}

const kept = { type: 'message.added', text: 'one two', partial: true }

describe('the output of a running turn', () => {
  it('is recorded soon, also if the agent says nothing more', async () => {
    const hold = await openHoldfast({ store: 'memory:', agents: { stuck }, limits: LIMITS })
    const session = await hold.resolve()
    await session.submit('x')
    await until(async () => outputs(await logOf(hold, session.id)) === 'one two')
    expect(await logOf(hold, session.id)).toContainEqual(
      expect.objectContaining({ type: 'turn.output', turn: 't2', ignorable: true }),
    )
    await hold.close()
  })

  it('of a short turn is recorded with its message alone', async () => {
    const hold = await openHoldfast({ store: 'memory:' })
    const session = await hold.resolve({ agent: 'slow' })
    const input = { text: 'word by word', ms: 10 }
    expect(await session.turn(input)).toMatchObject({ reply: { text: 'word by word' } })
    expect(outputs(await logOf(hold, session.id))).toBe('')
    await hold.close()
  })

  it('is told to followers once, however often it is recorded', async () => {
    const hold = await openHoldfast({ store: 'memory:', limits: { checkpointMs: 1 } })
    const session = await hold.resolve({ agent: 'slow' })
    const words = Array.from({ length: 40 }, (_, n) => `word-${n} `).join('')
    const turn = session.turn({ text: words, ms: 200 })
    const parts: string[] = []
    const types = new Set<string>()
    const followed = (async () => {
      for await (const event of session.events()) {
        types.add(event.type)
        if (event.type === 'turn.done') return
      }
    })()
    for await (const part of turn) parts.push(part)
    await followed
    expect(parts.join('')).toBe(words)
    expect(outputs(await logOf(hold, session.id))).not.toBe('')
    expect([...types]).toEqual([
      ...['session.created', 'turn.started', 'delta', 'message.added', 'turn.done'],
    ])
    await hold.close()
  })
})

describe('what was said is kept', () => {
  /** A turn that has said what it will say. */
  async function said(store: string) {
    const spoken = gate()
    const agent: Agent = async function* (...args) {
      for await (const text of stuck(...args) as AsyncIterable<string>) {
        yield text
        if (text === 'two') spoken.open()
      }
    }
    const hold = await openHoldfast({ store, agents: { stuck: agent } })
    const session = await hold.resolve({ key: 'k' })
    const { id: turn } = await session.submit('x')
    const shown = gate()
    void (async () => {
      for await (const event of session.events()) if (event.type === 'delta') shown.open()
    })().catch(() => undefined)
    await Promise.all([spoken.opened, shown.opened])
    return { hold, session, turn }
  }

  it('if the turn is cancelled', async () => {
    const { hold, session, turn } = await said('memory:')
    expect(await session.cancelTurn(turn)).toMatchObject({ reply: { text: 'one two' } })
    await hold.close()
  })

  it('if the session is closed', async () => {
    const { hold, session, turn } = await said('memory:')
    await session.close()
    expect((await logOf(hold, session.id)).slice(3, 5)).toMatchObject([
      ...[kept, { type: 'turn.cancelled', reason: 'session_closed' }],
    ])
    expect(await session.getTurn(turn)).toMatchObject({ reply: { text: 'one two' } })
    await hold.close()
  })

  it('if the server stops', async () => {
    const store = `sqlite:${join(folder, 'stopped.db')}`
    const { hold, session } = await said(store)
    await hold.close()
    const again = await openHoldfast({ store, agents: { stuck } })
    expect((await logOf(again, session.id)).slice(3)).toMatchObject([
      ...[kept, { type: 'turn.interrupted', reason: 'shutdown' }],
    ])
    await again.close()
  })

  it('if the server is killed, up to the last checkpoint, and says what happened', async () => {
    const data = join(folder, 'killed')
    const server = await ServerProcess.start({ data })
    const words = Array.from({ length: 600 }, (_, n) => `word-${n} `).join('')
    const response = await fetch(`${server.url}/v1/keys/k/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify({ agent: 'slow', input: { text: words, ms: 60_000 } }),
    })
    const path = (response.headers.get('content-location') ?? '').replace(/\/turns\/.*/, '')
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    let seen = ''
    while (!seen.includes('word-3 ')) {
      const { value = '' } = await reader.read()
      for (const [, text = ''] of value.matchAll(/"type":"delta".*"text":"([^"]*)"/g)) seen += text
    }
    const events = async (url: string): Promise<readonly SessionEvent[]> =>
      ((await (await fetch(`${url}${path}/events`)).json()) as any).events
    await until(async () => outputs(await events(server.url)).startsWith(seen))
    await server.kill()
    await reader.cancel().catch(() => undefined)
    const again = await ServerProcess.start({ data })
    const log = await events(again.url)
    const [message, end] = log.slice(-2)
    expect(end).toMatchObject({ type: 'turn.interrupted', reason: 'server_crashed' })
    expect(message).toMatchObject({ type: 'message.added', partial: true })
    expect(words.startsWith(Reflect.get(message ?? {}, 'text') as string)).toBe(true)
    expect((Reflect.get(message ?? {}, 'text') as string).startsWith(seen)).toBe(true)
    const turn = (await (await fetch(`${again.url}${path}/turns/t2`)).json()) as any
    expect(turn.turn).toMatchObject({ state: 'interrupted', reason: 'server_crashed' })
    expect(turn.turn.reply.text.startsWith(seen)).toBe(true)
    const transcript = await (await fetch(`${again.url}${path}/transcript`)).text()
    expect(transcript).toContain('"partial":true')
    await again.stop()
  })
})

describe("a stock OpenAI client's streamed answer that a kill cuts off", () => {
  /** Counts until it is killed, but says what it remembers if it is asked. */
  const CONFIG = `export default {
    limits: { checkpointMs: 20 },
    agents: {
      counter: async function* ({ text }, { history }) {
        const said = []
        for await (const { role, text, partial = false } of history()) said.push([role, text, partial])
        if (text === 'what was said?') return { text: JSON.stringify(said) }
        for (let n = 0; ; n += 1) {
          yield n + ' '
          await new Promise((resolve) => setTimeout(resolve, 1))
        }
      },
    },
  }`

  const isCounted = (text: string): boolean =>
    text
      .trimEnd()
      .split(' ')
      .every((number, n) => number === String(n))

  async function start(data: string): Promise<ServerProcess> {
    const config = join(folder, 'counter.config.mjs')
    await writeFile(config, CONFIG)
    return ServerProcess.start({ data, flags: ['--config', config] })
  }

  const client = ({ url }: ServerProcess): OpenAI =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })

  /** All that a stream says, and the error that ends it. */
  async function read(stream: AsyncIterable<any>, enough: (text: string) => boolean = () => false) {
    let text = ''
    try {
      for await (const chunk of stream) {
        text += chunk.choices?.[0]?.delta.content ?? (chunk.type === DELTA ? chunk.delta : '')
        if (enough(text)) return { text, error: null }
      }
    } catch (error) {
      return { text, error }
    }
    return { text, error: null }
  }
  const DELTA = 'response.output_text.delta'

  it('is told by what it was cut off, with all that was shown, and runs no second time', async () => {
    const data = join(folder, 'openai')
    const first = await start(data)
    const chat = { model: 'counter', messages: [{ role: 'user' as const, content: 'count' }] }
    const named = { 'x-session-key': 'k', 'idempotency-key': 'once' }
    const ask = (server: ServerProcess, headers: Record<string, string>) =>
      client(server)
        .chat.completions.create({ ...chat, stream: true }, { headers })
        .withResponse()
    const asked = await ask(first, named)
    const session = asked.response.headers.get('x-session-id')
    // The same of a client that names no key, and marks its retry.
    const marked = { 'x-session-key': 'other', 'x-stainless-retry-count': '0' }
    const other = await ask(first, marked)
    const streamed = await client(first)
      .responses.create({ model: 'counter', input: 'count', stream: true })
      .withResponse()
    let response = ''
    const openings = async function* () {
      for await (const event of streamed.data) {
        if (event.type === 'response.created') response = event.response.id
        yield event
      }
    }
    const some = (text: string): boolean => text.includes('9 ')
    const shown = await Promise.all(
      [asked.data, other.data, openings()].map((stream) => read(stream, some)),
    )
    const log = async ({ url }: ServerProcess, id = session): Promise<readonly SessionEvent[]> =>
      ((await (await fetch(`${url}/v1/sessions/${id}/events`)).json()) as any).events
    const sessions = [asked, other, streamed].map(({ response }) =>
      response.headers.get('x-session-id'),
    )
    for (const [index, id] of sessions.entries()) {
      await until(async () => outputs(await log(first, id)).startsWith(shown[index]!.text))
    }
    await first.kill()

    const second = await start(data)
    const again = await ask(second, named)
    const retried = await read(again.data)
    expect(retried.error).toMatchObject({ code: 'turn_interrupted' })
    expect(String(retried.error)).toContain('server_crashed')
    expect(retried.text.startsWith(shown[0]!.text)).toBe(true)
    expect(isCounted(retried.text)).toBe(true)
    const whole = client(second).chat.completions.create(chat, { headers: named })
    await expect(whole).rejects.toMatchObject({ status: 500, code: 'turn_interrupted' })
    const repeated = await ask(second, { ...marked, 'x-stainless-retry-count': '1' })
    const { text, error } = await read(repeated.data)
    expect([error, text.startsWith(shown[1]!.text)]).toMatchObject([
      ...[{ code: 'turn_interrupted' }, true],
    ])
    const failed = await client(second).responses.retrieve(response)
    expect(failed).toMatchObject({ status: 'failed', error: { code: 'turn_interrupted' } })
    expect(failed.output).toMatchObject([{ type: 'message', status: 'incomplete' }])
    expect(isCounted(failed.output_text)).toBe(true)

    const transcript = await (await fetch(`${second.url}/v1/sessions/${session}/transcript`)).text()
    const messages = transcript.trimEnd().split('\n')
    expect(messages.map((line) => JSON.parse(line))).toMatchObject([
      { role: 'user', text: 'count' },
      { role: 'assistant', text: retried.text, partial: true },
    ])
    const question = { role: 'user' as const, content: 'what was said?' }
    const next = await client(second).chat.completions.create(
      { model: 'counter', messages: [question] },
      { headers: { 'x-session-key': 'k' } },
    )
    expect(JSON.parse(next.choices[0]?.message.content ?? '')).toEqual([
      ['user', 'count', false],
      ['assistant', retried.text, true],
    ])
    const starts = (await log(second)).filter(({ type }) => type === 'turn.started')
    expect(starts).toHaveLength(2)
    await second.stop()
  })
})
