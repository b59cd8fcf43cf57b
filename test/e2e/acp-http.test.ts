/** Streamable HTTP at the ACP door: its requests and streams, cut, wrong, and of others. */
import { builtinAgents } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import type { Agent } from '../../src/runners/function.ts'
import { StockClient } from '../support/acp-client.ts'
import { FaultProxy } from '../support/fault-proxy.ts'
import { until } from '../support/gate.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'

let server: TestServer
const ends: (() => unknown)[] = []

afterEach(async () => {
  for (const end of ends.splice(0)) await end()
  await server.close()
})

async function start(options: TestServerOptions = {}): Promise<void> {
  server = await serve({ agents: { ...builtinAgents, waits }, ...options })
}

/** Says its input's words one by one, as far as the test lets it. */
let go: () => void = () => undefined
const waits: Agent = async function* ({ text }, { signal }) {
  for (const word of text.split(' ')) {
    yield `${word} `
    await new Promise<void>((resolve) => {
      go = resolve
      signal.addEventListener('abort', () => resolve())
    })
  }
}

type Headers = Readonly<Record<string, string>>
const TYPE = { 'content-type': 'application/json' }
const INITIALIZE = { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: 1 } }

/** A connection, request by request. */
class RawHttp {
  readonly said: any[] = []
  /** The comments of its streams. */
  readonly comments: string[] = []
  readonly headers: Headers
  id = ''

  constructor(headers: Headers = {}) {
    this.headers = headers
    ends.push(() => this.cut.abort())
  }

  readonly cut = new AbortController()

  static async open(headers: Headers = {}, params: object = {}): Promise<RawHttp> {
    const raw = new RawHttp(headers)
    const initialize = { ...INITIALIZE, params: { ...INITIALIZE.params, ...params } }
    const answer = await raw.post(JSON.stringify(initialize))
    raw.id = answer.headers.get('acp-connection-id') ?? ''
    expect(raw.id).not.toBe('')
    return raw
  }

  fetch(method: string, { body, ...headers }: Headers = {}): Promise<Response> {
    return fetch(`${server.url}/acp`, {
      method,
      headers: { ...this.headers, ...(this.id && { 'acp-connection-id': this.id }), ...headers },
      ...(body === undefined ? {} : { body }),
    })
  }

  post(body: string, headers: Headers = {}): Promise<Response> {
    return this.fetch('POST', { ...TYPE, ...headers, body })
  }

  /** Opens the stream of the connection, or of a session; the returned function cuts it. */
  async stream(session?: string): Promise<() => void> {
    const cut = new AbortController()
    const response = await fetch(`${server.url}/acp`, {
      headers: {
        ...this.headers,
        accept: 'text/event-stream',
        'acp-connection-id': this.id,
        ...(session === undefined ? {} : { 'acp-session-id': session }),
      },
      signal: AbortSignal.any([cut.signal, this.cut.signal]),
    })
    expect(response.status).toBe(200)
    const over = (): void => void this.comments.push(`end of ${session ?? ''}`)
    void this.#read(response, session ?? '').then(over, over)
    return () => cut.abort()
  }

  async #read({ body }: Response, stream: string): Promise<void> {
    let text = ''
    const decoder = new TextDecoder()
    for await (const chunk of body!) {
      text += decoder.decode(chunk as Uint8Array, { stream: true })
      for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
        const event = text.slice(0, end)
        text = text.slice(end + 2)
        if (event.startsWith('data: ')) this.said.push({ stream, ...JSON.parse(event.slice(6)) })
        else this.comments.push(event)
      }
    }
  }

  async request(id: number, method: string, params: object): Promise<any> {
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params })
    expect((await this.post(body)).status).toBe(202)
    await until(() => this.said.some((one) => one.id === id && one.method === undefined))
    return this.said.find((one) => one.id === id)
  }

  words(): string {
    return this.said
      .filter(({ params }) => params?.update?.sessionUpdate === 'agent_message_chunk')
      .map(({ params }) => params.update.content.text)
      .join('')
  }
}

const opening = (agent: string) => ({ cwd: '/', mcpServers: [], _meta: { holdfast: { agent } } })
const prompt = (sessionId: string, text: string) => ({
  sessionId,
  prompt: [{ type: 'text', text }],
})

describe('a connection over HTTP', () => {
  it('has its own answers in its stream, and what is about a session in that of the session', async () => {
    await start()
    const raw = await RawHttp.open()
    await raw.stream()
    const { result, stream } = await raw.request(1, 'session/new', opening('echo'))
    expect(stream).toBe('')
    const { sessionId } = result
    // What is said before its stream is open waits for it.
    const sent = JSON.stringify({
      ...{ jsonrpc: '2.0', id: 2, method: 'session/prompt' },
      params: prompt(sessionId, 'hello'),
    })
    const accepted = await raw.post(sent, { 'acp-session-id': sessionId })
    expect([accepted.status, await accepted.text()]).toEqual([202, ''])
    await raw.stream(sessionId)
    await until(() => raw.said.some(({ id }) => id === 2))
    expect(raw.said.slice(1).map((one) => one.stream)).toEqual([sessionId, sessionId])
    expect(raw.words()).toBe('hello')
    expect((await raw.request(3, 'session/list', {})).stream).toBe('')
    expect((await raw.fetch('DELETE')).status).toBe(202)
    await until(() => raw.comments.filter((text) => text.startsWith('end')).length === 2)
    expect((await raw.post(sent)).status).toBe(404)
    expect((await server.holdfast.session(sessionId).state()).attachments).toEqual([])
  })

  it('loses a session whose stream is cut, and resumes it without a gap or a repetition', async () => {
    await start()
    const raw = await RawHttp.open()
    await raw.stream()
    const { sessionId } = (await raw.request(1, 'session/new', opening('waits'))).result
    const cut = await raw.stream(sessionId)
    const body = { jsonrpc: '2.0', id: 2, method: 'session/prompt' }
    await raw.post(JSON.stringify({ ...body, params: prompt(sessionId, 'one two three') }))
    await until(() => raw.words() === 'one ')
    const { at } = raw.said.at(-1).params._meta.holdfast
    cut()
    const live = await server.holdfast.authority.open(sessionId)
    await until(() => live.session.attachments.every(({ state }) => state === 'detached'))
    go()
    await raw.stream(sessionId)
    const refused = await raw.request(3, 'session/prompt', prompt(sessionId, 'x'))
    expect(refused.error.data.code).toBe('attachment_unknown')
    await raw.request(4, 'session/resume', { sessionId, cwd: '/', _meta: { holdfast: { at } } })
    await until(() => raw.words() === 'one two ')
    go()
    await until(() => raw.words() === 'one two three ')
    go()
    // The prompt that it lost is not answered to it any more.
    await raw.request(5, 'session/close', { sessionId })
    expect(raw.said.filter(({ id }) => id === 2)).toEqual([])
  })

  it('ends when its own stream is cut, and as a client that was lost', async () => {
    await start()
    const raw = await RawHttp.open()
    const cut = await raw.stream()
    const { sessionId } = (await raw.request(1, 'session/new', opening('waits'))).result
    await raw.stream(sessionId)
    await raw.post(
      JSON.stringify({
        ...{ jsonrpc: '2.0', id: 2, method: 'session/prompt' },
        params: prompt(sessionId, 'a b'),
      }),
    )
    await until(() => raw.words() === 'a ')
    cut()
    await until(() => raw.comments.includes(`end of ${sessionId}`))
    expect((await raw.post(JSON.stringify({ ...INITIALIZE, id: 3 }))).status).toBe(404)
    const state = await server.holdfast.session(sessionId).state()
    expect(state).toMatchObject({ running: {}, attachments: [{ state: 'detached' }] })
  })

  it('takes a new stream of a session in place of one whose end it does not know', async () => {
    await start()
    const raw = await RawHttp.open()
    await raw.stream()
    expect((await raw.fetch('GET', { accept: 'text/event-stream' })).status).toBe(409)
    const { sessionId } = (await raw.request(1, 'session/new', opening('echo'))).result
    await raw.stream(sessionId)
    await raw.stream(sessionId)
    await until(() => raw.comments.includes(`end of ${sessionId}`))
    await raw.request(2, 'session/load', { sessionId, cwd: '/' })
    await raw.request(3, 'session/prompt', prompt(sessionId, 'again'))
    expect(raw.words()).toBe('again')
  })

  it('is given up if its client opens no stream, the one first that has waited longest', async () => {
    await start({ connectLimits: { newcomersMax: 2 } })
    const waiting = []
    for (let n = 0; n < 3; n += 1) waiting.push(await RawHttp.open())
    const ping = JSON.stringify({ ...INITIALIZE, id: 9 })
    const statuses = []
    for (const raw of waiting) statuses.push((await raw.post(ping)).status)
    expect(statuses).toEqual([404, 202, 202])
    await server.close()
    await start({ connectLimits: { pingMs: 30, deadMs: 60 } })
    const raw = await RawHttp.open()
    await until(async () => (await raw.post(ping)).status === 404)
  })

  it('loses nothing and is told nothing twice, whatever bytes its requests are cut at', async () => {
    const many: Agent = async function* ({ text }) {
      for (let n = 0; n < 60; n += 1) {
        yield `${text}.${n} `
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    await start({ agents: { many } })
    let state = 77
    const random = (most: number): number => {
      state = (state * 1_103_515_245 + 12_345) % 2 ** 31
      return state % most
    }
    const proxy = new FaultProxy({ port: server.server.port, bytes: () => 900 + random(9_000) })
    const url = `http://127.0.0.1:${new URL(await proxy.listen()).port}`
    ends.push(() => proxy.close())
    let told = ''
    let at: string | undefined
    let done = 0
    const initialize = { _meta: { holdfast: { client: 'the-same-client' } } }
    while (done < 6) {
      const clients: StockClient[] = []
      try {
        const client = await StockClient.connect(url, { transport: 'http', initialize })
        clients.push(client)
        const opened =
          at === undefined
            ? await client.request('session/new', {
                ...{ cwd: '/', mcpServers: [] },
                _meta: { holdfast: { key: 'k' } },
              })
            : await client.request('session/resume', {
                ...{ sessionId: (await server.holdfast.find('k'))!.id, cwd: '/', mcpServers: [] },
                _meta: { holdfast: { at } },
              })
        at ??= opened._meta.holdfast.at
        while (done < 6) {
          await client.prompt(opened.sessionId, `p${done}`, { prompt: `p${done}` })
          done += 1
        }
        await until(() => client.updates.at(-1)?.update.content?.text.endsWith('p5.59 ') === true)
      } catch {
        // It was cut, and comes back.
      } finally {
        for (const client of clients) {
          told += client.said()
          at = client.updates.at(-1)?.at ?? at
          client.kill()
        }
      }
    }
    const wanted = Array.from({ length: 360 }, (_, n) => `p${Math.floor(n / 60)}.${n % 60} `)
    expect(told).toBe(wanted.join(''))
    expect((await (await server.holdfast.find('k'))!.state()).turns).toBe(6)
    expect(proxy.cuts).toBeGreaterThan(5)
  })
})

describe('a request that is wrong', () => {
  it.each([
    ['no JSON', 'hello', {}, 400, -32_700],
    ['a batch', '[]', {}, 400, -32_600],
    ['no message', '{}', {}, 400, -32_600],
    ['an empty one', '', {}, 400, -32_700],
    ['another method first', '{"jsonrpc":"2.0","id":1,"method":"session/list"}', {}, 400, -32_600],
    ['an id that is null', JSON.stringify({ ...INITIALIZE, id: null }), {}, 400, -32_600],
    [
      'wrong parameters',
      '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
      {},
      400,
      -32_602,
    ],
    ['another type', 'x', { 'content-type': 'text/plain' }, 415, undefined],
    [
      'a connection that is none',
      '{"jsonrpc":"2.0","id":1,"method":"x"}',
      ID('none'),
      404,
      undefined,
    ],
    [
      'one of a node that is none',
      '{"jsonrpc":"2.0","id":1,"method":"x"}',
      ID('a.b'),
      404,
      undefined,
    ],
  ])('%s is refused', async (_, body, headers, status, code) => {
    await start()
    const answer = await new RawHttp().post(body, headers)
    expect(answer.status).toBe(status)
    if (code !== undefined) expect(await answer.json()).toMatchObject({ error: { code } })
  })

  it('on an open connection is answered, and the connection goes on', async () => {
    await start()
    const raw = await RawHttp.open()
    await raw.stream()
    const { sessionId } = (await raw.request(1, 'session/new', opening('echo'))).result
    const sent = JSON.stringify({
      ...{ jsonrpc: '2.0', id: 2, method: 'session/prompt' },
      params: prompt(sessionId, 'hello'),
    })
    expect((await raw.post(sent, { 'acp-session-id': 'another' })).status).toBe(400)
    expect((await raw.post('{"jsonrpc"')).status).toBe(400)
    const tooLarge = JSON.stringify({ ...INITIALIZE, params: { x: 'x'.repeat(8_400_000) } })
    expect((await raw.post(tooLarge)).status).toBe(413)
    expect((await raw.fetch('GET', { accept: 'application/json' })).status).toBe(406)
    expect((await raw.fetch('PUT')).status).toBe(405)
    expect((await raw.request(3, 'session/dance', {})).error.code).toBe(-32_601)
    const unknown = await raw.request(4, 'session/prompt', prompt('another', 'x'))
    expect(unknown.error.data.code).toBe('session_unknown')
    expect((await raw.request(5, 'session/list', {})).result.sessions).toHaveLength(1)
  })

  it('cannot fill the server with sessions that are not there', async () => {
    await start()
    const raw = await RawHttp.open()
    await raw.stream()
    for (let id = 1; id <= 30; id += 1) {
      const answer = await raw.request(id, 'session/prompt', prompt(`none-${id}`, 'x'))
      // They have no streams of their own.
      expect(answer).toMatchObject({ stream: '', error: { data: { code: 'session_unknown' } } })
    }
    const statuses: number[] = []
    for (let id = 0; id <= 256; id += 1) {
      const response = await fetch(`${server.url}/acp`, {
        headers: {
          ...{ accept: 'text/event-stream', 'acp-connection-id': raw.id },
          'acp-session-id': `none-${id}`,
        },
        signal: raw.cut.signal,
      })
      statuses.push(response.status)
    }
    expect(statuses.filter((status) => status === 429)).toHaveLength(1)
  })
})

function ID(id: string): Headers {
  return { 'acp-connection-id': id }
}

describe('a connection with tokens', () => {
  it('is nobody else’s, and ends with its token', async () => {
    const good = new Map([
      ['one', 'talk'],
      ['two', 'admin'],
    ])
    let revision = 1
    const tokens = {
      scopesOf: (token: string) => (good.has(token) ? ([good.get(token)] as never) : null),
      revision: () => revision,
      close: () => undefined,
    }
    await start({ tokens })
    const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })
    expect((await new RawHttp().post(JSON.stringify(INITIALIZE))).status).toBe(401)
    const raw = await RawHttp.open(as('one'))
    await raw.stream()
    for (const method of ['GET', 'DELETE', 'POST']) {
      const more = method === 'POST' ? { ...TYPE, body: JSON.stringify(INITIALIZE) } : {}
      const accept = { accept: 'text/event-stream' }
      const answer = await raw.fetch(method, { ...accept, ...more, ...as('two') })
      expect([method, answer.status]).toEqual([method, 404])
      const without = await raw.fetch(method, { ...accept, ...more, authorization: '' })
      expect([method, without.status]).toEqual([method, 401])
    }
    expect((await raw.request(1, 'session/list', {})).result).toMatchObject({ sessions: [] })
    good.delete('one')
    revision += 1
    await until(() => raw.comments.includes('end of '))
  })

  it('takes one of its caller’s sockets', async () => {
    const access = { principal: 'alice', groups: [], scopes: ['talk'], quotas: { sockets: 1 } }
    const tokens = {
      scopesOf: () => ['talk'] as never,
      accessOf: () => access as never,
      close: () => undefined,
    }
    await start({ tokens })
    const headers = { authorization: 'Bearer x' }
    const raw = await RawHttp.open(headers)
    const again = () => new RawHttp(headers).post(JSON.stringify(INITIALIZE))
    expect((await again()).status).toBe(429)
    await raw.fetch('DELETE')
    expect((await again()).status).toBe(200)
  })
})
