/** What an ACP client may send: wrong, torn, oversized, of others. It is answered, or the socket is closed. */
import { builtinAgents } from 'holdfast'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { until } from '../support/gate.ts'
import { serve, type TestServer, type TestServerOptions } from '../support/server.ts'

let server: TestServer
const sockets: WebSocket[] = []

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.terminate()
  await server.close()
})

async function start(options: TestServerOptions = {}): Promise<void> {
  server = await serve({ agents: builtinAgents, ...options })
}

class Raw {
  readonly socket: WebSocket
  readonly said: any[] = []
  code: number | null = null

  constructor(headers: Record<string, string> = {}, path = '/acp') {
    this.socket = new WebSocket(`${server.url.replace('http', 'ws')}${path}`, { headers })
    sockets.push(this.socket)
    this.socket.on('message', (data) => this.said.push(JSON.parse((data as Buffer).toString())))
    this.socket.on('close', (code) => (this.code = code))
    this.socket.on('error', () => undefined)
  }

  async send(
    data: string | Buffer,
    options: { binary?: boolean; fin?: boolean } = {},
  ): Promise<void> {
    await until(() => this.socket.readyState !== WebSocket.CONNECTING)
    this.socket.send(data, options)
  }

  /** The answer to it. */
  async answer(text: string): Promise<any> {
    const { length } = this.said
    await this.send(text)
    await until(() => this.said.length > length)
    return this.said[length]
  }

  request(id: unknown, method: string, params?: unknown): Promise<any> {
    return this.answer(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
  }
}

const INITIALIZE = { protocolVersion: 1 }

describe('a message that is wrong', () => {
  it.each([
    ['no JSON', 'hello', -32_700, 'bad_request'],
    ['a torn message', '{"jsonrpc":"2.0","id":1,"meth', -32_700, 'bad_request'],
    ['a batch', '[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32_600, 'bad_request'],
    ['another version', '{"jsonrpc":"1.0","id":1,"method":"initialize"}', -32_600, 'bad_request'],
    ['a number', '7', -32_600, 'bad_request'],
    [
      'an id that is none',
      '{"jsonrpc":"2.0","id":{},"method":"initialize"}',
      -32_600,
      'bad_request',
    ],
    ['no method', '{"jsonrpc":"2.0","id":1}', -32_600, 'bad_request'],
    [
      'an unknown method',
      '{"jsonrpc":"2.0","id":1,"method":"session/dance"}',
      -32_601,
      'route_unknown',
    ],
    [
      'one of the object’s own',
      '{"jsonrpc":"2.0","id":1,"method":"toString"}',
      -32_601,
      'route_unknown',
    ],
    [
      'one not supported',
      '{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"methodId":"x"}}',
      -32_601,
      'route_unknown',
    ],
    ['too early', '{"jsonrpc":"2.0","id":1,"method":"session/list"}', -32_602, 'bad_request'],
    [
      'wrong types',
      '{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":7,"prompt":"x"}}',
      -32_602,
      'invalid_field',
    ],
    [
      'what nests too deep',
      `{"jsonrpc":"2.0","id":1,"method":"initialize","params":${'['.repeat(200)}${']'.repeat(200)}}`,
      -32_600,
      'bad_request',
    ],
  ])('%s is answered, and the connection goes on', async (_, text, code, ours) => {
    await start()
    const raw = new Raw()
    expect(await raw.answer(text)).toMatchObject({
      error: { code, data: { code: ours, retry: false } },
    })
    expect(await raw.request(2, 'initialize', INITIALIZE)).toMatchObject({
      result: { protocolVersion: 1 },
    })
  })

  it('has no answer if it is a notification', async () => {
    await start()
    const raw = new Raw()
    await raw.send('{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":7}}')
    await raw.request(2, 'initialize', INITIALIZE)
    expect(raw.said.map(({ id }) => id)).toEqual([2])
  })

  it('names the field that is wrong, and a name of ours that is not known', async () => {
    await start()
    const raw = new Raw()
    await raw.request(1, 'initialize', INITIALIZE)
    const made = (holdfast: object) =>
      raw.request(2, 'session/new', { cwd: '/', _meta: { holdfast } })
    expect((await made({ kye: 'x' })).error).toMatchObject({
      data: { field: '_meta.holdfast.kye' },
    })
    expect((await made({ settings: { cwd: '/' } })).error).toMatchObject({
      data: { code: 'setting_unsupported' },
    })
    expect((await made({ agent: 'none' })).error).toMatchObject({ data: { code: 'agent_unknown' } })
    const { result } = await made({})
    const prompt = (blocks: unknown) =>
      raw.request(3, 'session/prompt', { sessionId: result.sessionId, prompt: blocks })
    expect((await prompt([])).error).toMatchObject({ data: { field: 'prompt' } })
    expect((await prompt([{ type: 'audio' }])).error).toMatchObject({
      data: { code: 'input_unsupported' },
    })
    expect(
      (await prompt([{ type: 'image', mimeType: 'image/png', data: '???' }])).error,
    ).toMatchObject({ data: { field: 'prompt.0.data' } })
    const resume = (at: string) =>
      raw.request(4, 'session/resume', {
        sessionId: result.sessionId,
        cwd: '/',
        _meta: { holdfast: { at } },
      })
    expect((await resume('x')).error).toMatchObject({ data: { code: 'invalid_field' } })
    expect((await resume('1.99.0.0')).error).toMatchObject({ data: { code: 'ahead' } })
  })

  it('is cut where it is binary, too large, or no text', async () => {
    await start()
    const binary = new Raw()
    await binary.send(Buffer.from('{}'), { binary: true })
    await until(() => binary.said.length === 1)
    expect(binary.said[0].error.code).toBe(-32_700)
    const large = new Raw()
    await large.send('x'.repeat(8_388_609))
    await until(() => large.code !== null)
    expect(large.code).toBe(1009)
    const broken = new Raw()
    await broken.send(Buffer.from([0xff, 0xfe]), { binary: false })
    await until(() => broken.code !== null)
    expect(broken.code).toBe(1007)
    // A fragment that never ends holds nothing up.
    const torn = new Raw()
    await torn.send('{"jsonrpc"', { fin: false })
    const other = new Raw()
    expect(await other.request(1, 'initialize', INITIALIZE)).toMatchObject({ result: {} })
  })

  it('is bounded in how many sessions are open, also where they are opened at once', async () => {
    await start()
    const raw = new Raw()
    await raw.request(1, 'initialize', INITIALIZE)
    const sent = Array.from({ length: 80 }, (_, n) => n + 2)
    for (const id of sent) {
      const params = { cwd: '/' }
      await raw.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'session/new', params }))
    }
    await until(() => raw.said.length === 81)
    expect(raw.said.filter(({ error }) => error?.data.code === 'too_many')).toHaveLength(16)
    const [{ result }] = raw.said.filter((one) => one.result?.sessionId !== undefined)
    const { sessionId } = result
    expect(await raw.request(90, 'session/close', { sessionId })).toMatchObject({ result: {} })
    expect(await raw.request(91, 'session/load', { sessionId })).toMatchObject({ result: {} })
  })

  it('is no error where it deletes a second time, as after a lost answer', async () => {
    await start()
    const raw = new Raw()
    await raw.request(1, 'initialize', INITIALIZE)
    for (const meta of [{}, { _meta: { holdfast: { keep: true } } }]) {
      const { sessionId } = (await raw.request(2, 'session/new', { cwd: '/' })).result
      for (const id of [3, 4]) {
        const answer = await raw.request(id, 'session/delete', { sessionId, ...meta })
        expect(answer).toMatchObject({ id, result: {} })
      }
    }
    const unknown = await raw.request(5, 'session/delete', { sessionId: 'none' })
    expect(unknown).toMatchObject({ error: { data: { code: 'session_unknown' } } })
  })

  it('cannot become another client by a second initialize', async () => {
    await start()
    const raw = new Raw()
    const as = (client: string) => ({ ...INITIALIZE, _meta: { holdfast: { client } } })
    await raw.request(1, 'initialize', as('client-one'))
    expect(await raw.request(2, 'initialize', as('client-two'))).toMatchObject({
      error: { data: { field: '_meta.holdfast.client' } },
    })
    expect(await raw.request(3, 'initialize', as('client-one'))).toMatchObject({ result: {} })
  })

  it('is bounded in how many requests wait', async () => {
    await start()
    const raw = new Raw()
    await raw.request(1, 'initialize', INITIALIZE)
    const { result } = await raw.request(2, 'session/new', {
      cwd: '/',
      _meta: { holdfast: { agent: 'ask' } },
    })
    const prompt = { sessionId: result.sessionId, prompt: [{ type: 'text', text: 'x' }] }
    for (let id = 3; id < 303; id += 1) {
      await raw.send(
        JSON.stringify({ jsonrpc: '2.0', id, method: 'session/prompt', params: prompt }),
      )
    }
    await until(() => raw.said.some(({ error }) => error?.data?.code === 'too_many'))
    expect(await raw.answer('nonsense')).toBeDefined()
  })
})

describe('a client that may not come in', () => {
  it.each([
    ['of another host', { host: 'evil.example' }, '/acp', 403],
    ['a page of another origin', { origin: 'https://evil.example' }, '/acp', 403],
    ['with a parameter that is none', {}, '/acp?kye=x', 422],
    ['with a role that is none', {}, '/acp?role=king', 422],
  ])('%s is refused before its socket is open', async (_, headers, path, status) => {
    await start()
    expect(await refused(headers as never, path)).toBe(status)
  })

  it('without a good token is refused, and one whose token is taken back is closed', async () => {
    let scopes: readonly string[] | null = ['talk']
    let revision = 1
    const tokens = {
      scopesOf: (token: string) => (token === 'good' ? (scopes as never) : null),
      revision: () => revision,
      close: () => undefined,
    }
    await start({ tokens })
    expect(await refused({}, '/acp')).toBe(401)
    expect(await refused({ authorization: 'Bearer bad' }, '/acp')).toBe(401)
    const raw = new Raw({ authorization: 'Bearer good' })
    expect(await raw.request(1, 'initialize', INITIALIZE)).toMatchObject({ result: {} })
    scopes = null
    revision += 1
    await until(() => raw.code !== null)
    expect(raw.code).toBe(4401)
  })
})

async function refused(headers: Record<string, string>, path: string): Promise<number> {
  const { socket } = new Raw(headers, path)
  return new Promise((resolve) =>
    socket.once('unexpected-response', (_, { statusCode }) => resolve(statusCode ?? 0)),
  )
}
