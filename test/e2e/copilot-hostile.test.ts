/**
 * What comes over the Copilot port that no SDK would send: web pages, torn and oversized frames,
 * silence, and a network that cuts connections anywhere.
 */
import { connect } from 'node:net'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openTokenFile } from 'holdfast/server'
import type { Agent, Diagnostic } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FaultProxy } from '../support/fault-proxy.ts'
import { until } from '../support/gate.ts'
import { ENTRIES, secretOf, TokenFiles, tokenEntry } from '../support/principals.ts'
import { frame, RawCopilot } from '../support/raw-copilot.ts'
import { sendRaw } from '../support/raw-http.ts'
import { serve, type TestServer } from '../support/server.ts'

let files: TokenFiles
let server: TestServer
let port: number
const ran: string[] = []
const told: Diagnostic[] = []

const witness: Agent = async ({ text }) => {
  ran.push(text)
  return `said ${text}`
}
const limits = {
  connectBytesMax: 1_000,
  messageBytesMax: 100_000,
  partialTotalBytesMax: 150_000,
  newcomersMax: 8,
  requestsMax: 16,
  sessionsMax: 4,
  connectMs: 60_000,
}

beforeAll(async () => {
  files = await TokenFiles.make()
  server = await serve({
    agents: { witness },
    tokens: await files.open(),
    copilotLimits: limits,
    onDiagnostic: (diagnostic) => void told.push(diagnostic),
  })
  port = await server.server.listenCopilot(0)
})
afterAll(async () => {
  await until(() => server.server.copilotCounts.connections === 0)
  await server.close()
  await files.remove()
})

const open = (who = 'alice'): Promise<RawCopilot> => RawCopilot.open(port, secretOf(who))

/** What a connection is answered, until it is closed. */
function answerTo(bytes: string | Buffer): Promise<string> {
  return new Promise((resolve) => {
    let text = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes))
    socket.on('data', (data) => (text += data.toString()))
    // A reset is an end too.
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(text))
  })
}

describe('a web page that makes its browser connect', () => {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'connect', params: {} })

  it.each([
    ['GET', 'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'],
    [
      'POST with a frame as its body',
      `POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n${String(frame(body))}`,
    ],
    ['CONNECT', 'CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n'],
    ['one byte of a request', 'P'],
    [
      'a header of HTTP behind the length',
      `Content-Length: ${body.length}\r\nHost: x\r\n\r\n${body}`,
    ],
    [
      'a header of HTTP before the length',
      `Host: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    ],
    ['TLS', Buffer.from([0x16, 0x03, 0x01, 0x00, 0xa5])],
  ])('is closed at once, and told nothing: %s', async (_, bytes) => {
    expect(await answerTo(bytes)).toBe('')
    await until(() =>
      told.some(({ code, facts }) => {
        return (
          code === 'client_refused' &&
          facts['door'] === 'copilot' &&
          facts['reason'] === 'bad_request'
        )
      }),
    )
  })

  it('cannot have the port opened without tokens at all', async () => {
    const without = await serve({ agents: { witness } })
    try {
      await expect(without.server.listenCopilot(0)).rejects.toMatchObject({ code: 'invalid_field' })
    } finally {
      await without.close()
    }
  })

  it('does not find the door of other nodes at the HTTP port', async () => {
    const head = [
      ...[`Host: 127.0.0.1:${server.port}`, `Authorization: Bearer ${secretOf('admin')}`],
      ...['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'],
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ]
    const bytes = `GET /v1/copilot HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n`
    expect((await sendRaw(server.port, bytes)).status).toBe(404)
  })
})

describe('a frame', () => {
  it.each([
    ['is no JSON', '{'],
    ['is no object', '[]'],
    ['is of another version', '{"jsonrpc":"1.0","id":1,"method":"ping"}'],
    ['has an object as its id', '{"jsonrpc":"2.0","id":{},"method":"ping"}'],
    ['is neither a request nor an answer', '{"jsonrpc":"2.0","id":1}'],
    ['is a batch', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]'],
    [
      'nests too deep',
      `{"jsonrpc":"2.0","id":1,"method":"ping","params":${'['.repeat(90)}${']'.repeat(90)}}`,
    ],
    ['is not UTF-8', Buffer.from([0x22, 0xff, 0x22])],
  ])('that %s ends its connection', async (_, content) => {
    const client = await open()
    const bytes = Buffer.from(content)
    client.raw(Buffer.concat([Buffer.from(`Content-Length: ${bytes.length}\r\n\r\n`), bytes]))
    await client.closed
  })

  it('has a small bound before a token was shown, and a larger one after', async () => {
    expect(await answerTo(frame(`"${'x'.repeat(1_000)}"`))).toBe('')
    const client = await open()
    const message = 'x'.repeat(90_000)
    expect((await client.request('ping', { message })).message).toBe(message)
    // The length alone is enough.
    client.raw('Content-Length: 100001\r\n\r\n')
    await client.closed
  })

  it('that is torn counts against all others that are', async () => {
    const clients = [await open(), await open()]
    for (const client of clients) client.raw(`Content-Length: 99999\r\n\r\n${'x'.repeat(90_000)}`)
    await Promise.race(clients.map((client) => client.closed))
    expect(clients.filter(({ isClosed }) => isClosed)).toHaveLength(1)
    await Promise.all(clients.map((client) => client.cut()))
  })

  it('of any division is one message', async () => {
    const client = new RawCopilot(port)
    const params = { token: secretOf('alice') }
    for (const byte of frame(
      JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'connect', params }),
    )) {
      client.raw(Buffer.from([byte]))
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect((await client.response(7))['result'].protocolVersion).toBe(3)
    await client.cut()
  })
})

describe('a request', () => {
  it('for a method that is unknown, or with wrong fields, is refused alone', async () => {
    const client = await open()
    for (const method of ['session.fleet.start', 'toString', '__proto__', 'constructor']) {
      await expect(client.request(method)).rejects.toMatchObject({ rpc: { code: -32_601 } })
    }
    for (const [method, params] of [
      ['session.create', { sessionId: 7 }],
      ['session.create', []],
      ['session.resume', {}],
      ['session.send', { sessionId: 'x', prompt: 7 }],
      ['session.create', { tools: [{ name: '' }] }],
      ['session.permissions.handlePendingPermissionRequest', { sessionId: 'x', requestId: 'a1' }],
    ] as const) {
      await expect(client.request(method, params)).rejects.toMatchObject({ rpc: { code: -32_602 } })
    }
    const sessionId = 'x'.repeat(600)
    await expect(client.request('session.resume', { sessionId })).rejects.toMatchObject({
      data: { code: 'session_unknown' },
    })
    expect(await client.request('ping')).toMatchObject({ protocolVersion: 3 })
    await client.cut()
  })

  it('beyond what may wait is refused, and so is a session beyond what may be attached', async () => {
    const client = await open()
    const ids = Array.from({ length: 40 }, () => client.ask('session.list'))
    const answers = await Promise.all(ids.map((id) => client.response(id)))
    const refused = answers.filter(({ error }) => error?.data.code === 'too_many')
    expect(refused.length).toBeGreaterThan(0)
    const asked = Array.from({ length: 9 }, (_, n) =>
      client.ask('session.create', { sessionId: `many ${n}` }),
    )
    const made = await Promise.all(asked.map((id) => client.response(id)))
    expect(made.filter(({ error }) => error?.data.code === 'too_many')).toHaveLength(5)
    await expect(client.request('session.create', { sessionId: 'many 9' })).rejects.toMatchObject({
      data: { code: 'too_many' },
    })
    await client.request('session.detach', { sessionId: 'many 0' })
    await client.request('session.create', { sessionId: 'many 5' })
    await client.cut()
  })
})

describe('a connection', () => {
  it('that shows no token goes for those that come later', async () => {
    const silent = Array.from({ length: 9 }, () => new RawCopilot(port))
    await Promise.race(silent.map(({ closed }) => closed))
    const client = await open()
    await client.cut()
    await Promise.all(silent.map((one) => one.cut()))
  })

  it('ends with its token', async () => {
    const file = await files.write('revoked.json', ENTRIES)
    const tokens = await openTokenFile(file)
    const other = await serve({ agents: { witness }, tokens })
    const client = await RawCopilot.open(await other.server.listenCopilot(0), secretOf('alice'))
    await client.request('session.create', { sessionId: 'revoked' })
    await writeFile(
      join(files.folder, 'revoked.json'),
      JSON.stringify({ version: 3, tokens: [tokenEntry('other', { scopes: ['watch'] })] }),
    )
    await client.closed
    await other.close()
  })

  it('that is silent is pinged and given up, and one that says nothing at all is closed', async () => {
    const quick = { pingMs: 20, deadMs: 150, watchMs: 10, connectMs: 150 }
    const other = await serve({
      agents: { witness },
      tokens: await files.open(),
      copilotLimits: quick,
    })
    const at = await other.server.listenCopilot(0)
    const alive = await RawCopilot.open(at, secretOf('alice'))
    const dead = await RawCopilot.open(at, secretOf('alice'), { silent: true })
    const mute = new RawCopilot(at)
    await Promise.all([dead.closed, mute.closed])
    await alive.message(({ method }) => method === 'ping')
    expect(await alive.request('ping')).toMatchObject({ protocolVersion: 3 })
    await alive.cut()
    await other.close()
  })

  it('that reads nothing is cut, and costs no memory without bound', async () => {
    const slow = { bufferedBytesMax: 10_000, slowMs: 100 }
    const other = await serve({
      agents: { witness },
      tokens: await files.open(),
      copilotLimits: slow,
    })
    const at = await other.server.listenCopilot(0)
    const client = await RawCopilot.open(at, secretOf('alice'))
    await client.request('session.create', { sessionId: 'slow', streaming: true })
    client.socket.pause()
    const prompt = 'x'.repeat(200_000)
    // The socket's own buffers take some megabytes first.
    for (let n = 0; n < 60 && other.server.copilotCounts.connections > 0; n += 1) {
      client.ask('session.send', { sessionId: 'slow', prompt })
    }
    await until(() => other.server.copilotCounts.connections === 0)
    client.socket.resume()
    await client.cut()
    await other.close()
  })
})

describe('a header without its message', () => {
  it('is answered at once, so that a client which waits for its acknowledgement goes on', async () => {
    const client = new RawCopilot(port)
    const token = JSON.stringify({
      ...{ jsonrpc: '2.0', id: 1, method: 'connect' },
      params: { token: secretOf('alice') },
    })
    client.raw(`Content-Length: ${token.length}\r\n\r\n`)
    client.raw(token)
    expect((await client.response(1))['error']).toBeUndefined()
    // Nothing is told to a client that has shown no token.
    expect(client.messages).toHaveLength(1)
    const ping = JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'ping', params: {} })
    client.raw(`Content-Length: ${ping.length}\r\n\r\n`)
    await client.message(({ method }) => method === '$/reading')
    client.raw(ping)
    expect((await client.response(2))['error']).toBeUndefined()
    client.say({ id: 3, method: 'ping', params: {} })
    await client.response(3)
    expect(client.messages.filter(({ method }) => method === '$/reading')).toHaveLength(1)
    await client.cut()
  })
})

describe('connections that are cut at random bytes', () => {
  it('lose nothing and do nothing twice: each message that was accepted runs once, in order', async () => {
    let state = 4_242
    const random = (most: number): number => {
      state = (state * 1_103_515_245 + 12_345) % 2 ** 31
      return state % most
    }
    const proxy = new FaultProxy({ port, bytes: () => 400 + random(6_000) })
    const at = Number(new URL(await proxy.listen()).port)
    const sessionId = 'through faults'
    const accepted: string[] = []
    const seen = new Map<string, string>()
    const sent: string[] = []
    let next = 0
    const connection = async (): Promise<void> => {
      const client = await RawCopilot.open(at, secretOf('alice'))
      try {
        await client.request('session.create', { sessionId })
        while (next < 60) {
          const text = `message ${next}`
          next += 1
          sent.push(text)
          await client.request('session.send', { sessionId, prompt: text })
          accepted.push(text)
        }
      } finally {
        for (const { id, type, data } of client.events(sessionId)) {
          if (type === 'user.message') seen.set(id, data.content)
        }
        await client.cut()
      }
    }
    // A connection that was cut is opened anew.
    while (next < 60) await connection().catch(() => undefined)
    expect(proxy.cuts).toBeGreaterThan(3)
    proxy.isGentle = true
    const client = await RawCopilot.open(at, secretOf('alice'))
    await client.request('session.resume', { sessionId })
    await until(
      async () =>
        !(await client.request('session.metadata.isProcessing', { sessionId })).processing,
    )
    const { events } = await client.request('session.getMessages', { sessionId })
    const told = events.filter(({ type }: any) => type === 'user.message')
    const texts: string[] = told.map(({ data }: any) => data.content)
    expect(ran.filter((text) => sent.includes(text))).toEqual(texts)
    // In order, each at most once, and every one that was accepted.
    expect(texts).toEqual(sent.filter((text) => texts.includes(text)))
    expect(accepted.filter((text) => !texts.includes(text))).toEqual([])
    // What was heard live is in the history, under the same id.
    const ids = new Map<string, string>(told.map(({ id, data }: any) => [id, data.content]))
    for (const [id, text] of seen) expect(ids.get(id)).toBe(text)
    await client.cut()
    await proxy.close()
  })
})
