/** Clients that send without end, in frames that are no messages: cut off and told of. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Diagnostic } from 'holdfast'
import { serve, type TestServer } from '../support/server.ts'
import { dial, WireClient } from '../support/wire-client.ts'

const diagnostics: Diagnostic[] = []
let server: TestServer
let clients: WireClient[] = []

beforeAll(async () => {
  server = await serve({
    onDiagnostic: (diagnostic) => {
      if (diagnostic.code === 'client_refused') diagnostics.push(diagnostic)
    },
  })
})

afterAll(() => server.close())

afterEach(() => {
  for (const { socket } of clients.splice(0)) socket.terminate()
  diagnostics.length = 0
})

/** Before its hello, and as a watcher after it. */
const ways: readonly [string, () => Promise<WireClient>][] = [
  ['before its hello', async () => newcomer()],
  ['as a watcher', async () => watcher()],
]

async function newcomer(): Promise<WireClient> {
  const client = new WireClient(server.url)
  clients.push(client)
  await client.opened
  return client
}

async function watcher(): Promise<WireClient> {
  const { id } = (await server.post('/v1/sessions', {})).body
  const client = dial(server.url, { session: id, role: 'watcher' })
  clients.push(client)
  await client.frame('welcome')
  return client
}

describe.each(ways)('a socket %s', (_, connected) => {
  it.each(['ping', 'pong'] as const)('that floods with %ss is cut off', async (kind) => {
    const client = await connected()
    for (let n = 0; n < 2_000; n += 1) client.socket[kind]('x'.repeat(125), undefined, () => {})
    expect((await client.closed).code).toBe(1008)
    expect(diagnostics).toMatchObject([
      { code: 'client_refused', facts: { reason: 'control_frames', address: '127.0.0.1' } },
    ])
    expect((await server.get('/health')).status).toBe(200)
  })

  it('that sends a message in countless pieces is cut off', async () => {
    const client = await connected()
    client.socket.send('', { fin: false })
    for (let n = 0; n < 5_000; n += 1) client.socket.send('', { fin: false }, () => undefined)
    expect([1006, 1008]).toContain((await client.closed).code)
    expect(diagnostics).toMatchObject([
      { code: 'client_refused', facts: { reason: 'broken_frames', address: '127.0.0.1' } },
    ])
  })

  it('is not offered compression, which could hide a large message in a small one', async () => {
    expect((await connected()).socket.extensions).toBe('')
  })

  it('has its pings answered', async () => {
    const client = await connected()
    const answered = new Promise<string>((resolve) => {
      client.socket.on('pong', (data) => resolve(data.toString()))
    })
    client.socket.ping('are you there')
    expect(await answered).toBe('are you there')
  })
})
