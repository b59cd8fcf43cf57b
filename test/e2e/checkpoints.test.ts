/** What a turn has said and shown is kept when it is cut short, whatever cuts it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openHoldfast, type Agent, type Holdfast, type SessionEvent } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ServerProcess } from '../crash/server.ts'
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
    const server = await ServerProcess.start(data)
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
    const again = await ServerProcess.start(data)
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
