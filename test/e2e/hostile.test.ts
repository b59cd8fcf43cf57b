/**
 * Clients that break the protocol, flood, stall or pry: each gets a clear refusal, nobody else notices,
 * and nothing is left of it.
 */
import { request } from 'node:http'
import { connect } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { Connection } from '../../src/doors/connect/connection.ts'
import { connectService } from '../../src/doors/connect/entry.ts'
import type { Socket } from '../../src/doors/connect/socket.ts'
import type { Agent } from '../../src/runners/function.ts'
import { startServer, type HoldfastServer } from '../../src/server/server.ts'
import { openHoldfast } from '../../src/open.ts'
import { until } from '../support/gate.ts'
import { serveHub, type HubServer } from '../support/hub-server.ts'
import { dial, WireClient, type WireOptions } from '../support/wire-client.ts'

let server: HubServer
/** One that does not wait long for a hello. */
let hasty: HubServer
let bystander: WireClient
let clients: WireClient[] = []
const sessions = new Set<string>()
let keys = 0

/** Long answers on demand: `<count>x<characters>` in as many messages. */
const flood: Agent = async function* ({ text }) {
  const [count = 0, chars = 0] = text.split('x').map(Number)
  for (let n = 1; n < count; n += 1) yield { type: 'message', text: `${n} ${'x'.repeat(chars)}` }
  return `${count} ${'x'.repeat(chars)}`
}

/** Who reads at all is not too slow, however busy the machine is. */
const SLOW_MS = 3_000
const LIMITS = {
  watchMs: 5,
  probeMs: 20,
  requestsMax: 8,
  slowMs: SLOW_MS,
  bufferedBytesMax: 262_144,
}

beforeAll(async () => {
  server = await serveHub(LIMITS, { flood })
  hasty = await serveHub({ helloMs: 60, watchMs: 5 })
})

afterAll(async () => {
  await server.close()
  await hasty.close()
})

// Somebody who behaves is there all the time, on the session that is attacked.
beforeEach(async () => {
  keys += 1
  bystander = await attached({ options: { graceMs: 0 } })
})

afterEach(async () => {
  const round = `still ${keys}`
  bystander.send({ type: 'turn', id: round, input: round })
  const { turn } = await bystander.reply(round)
  await bystander.frame((frame) => frame.type === 'turn.done' && frame['turn'] === turn)
  for (const { socket } of clients.splice(0)) socket.terminate()
  await server.assertNothingLeft(sessions)
  sessions.clear()
})

const DEEP = 100_000

describe('a message that is not the protocol', () => {
  const wrong: readonly [string, string | Buffer][] = [
    ['nothing', ''],
    ['no JSON', '{"type":"ping"'],
    ['a binary message', Buffer.from('{"type":"ping"}')],
    ['an empty array', '[]'],
    ['a number', '1'],
    ['null', 'null'],
    ['an array of arrays', '[[{"type":"ping"}]]'],
    ['no type', '{}'],
    ['an unknown type', '{"type":"open"}'],
    ['a type of every object', '{"type":"constructor"}'],
    ['a type that is a prototype', '{"type":"__proto__"}'],
    ['a type that is no text', '{"type":{"toString":"ping"}}'],
    ['a field too much', '{"type":"ping","at":1}'],
    ['a polluting field', '{"type":"ping","__proto__":{"type":"bye"}}'],
    ['a turn without an id', '{"type":"turn","input":"x"}'],
    ['a turn with an empty id', '{"type":"turn","id":"","input":"x"}'],
    ['a turn with a long id', `{"type":"turn","id":"${'x'.repeat(65)}","input":"x"}`],
    ['a turn whose input is a number', '{"type":"turn","id":"1","input":1}'],
    ['a turn whose text is a list', '{"type":"turn","id":"1","input":{"text":[]}}'],
    ['a turn with a negative wait', '{"type":"turn","id":"1","input":"x","waitMs":-1}'],
    ['a turn with half a millisecond', '{"type":"turn","id":"1","input":"x","waitMs":0.5}'],
    ['a cancel of a number', '{"type":"cancel","id":"1","turn":2}'],
    ['an answer without an answer', '{"type":"answer","id":"1","ask":"a1"}'],
    ['a confirmation of a text', '{"type":"ready","epoch":"1"}'],
    ['a confirmation of infinity', '{"type":"ready","epoch":1e999}'],
    ['a second hello', '{"type":"hello","v":1,"key":"x"}'],
    ['deep brackets', '['.repeat(DEEP) + ']'.repeat(DEEP)],
    ['a deep input', `{"type":"turn","id":"1","input":{"text":"x","a":${nested()}}}`],
    ['a deep answer', `{"type":"answer","id":"1","ask":"a1","answer":${nested()}}`],
  ]

  it.each(wrong)('closes with 4400: %s', async (_, message) => {
    const client = await attached()
    client.raw(message)
    expect(await client.closed).toEqual({ code: 4400, reason: 'bad_request' })
    expect(client.of('ending')).toMatchObject([{ code: 'bad_request' }])
  })

  it.each(wrong.filter(([what]) => what !== 'a second hello'))(
    'is no hello: %s',
    async (_, message) => {
      const client = connectAnew()
      client.raw(message)
      expect(await client.closed).toEqual({ code: 4400, reason: 'bad_request' })
      expect(client.frames).toMatchObject([{ type: 'refuse', code: 'bad_request' }])
    },
  )

  it('does not undo what came before it in the same message', async () => {
    const client = await attached()
    client.raw('[{"type":"ping"},{"type":"nonsense"}]')
    await client.closed
    // All of a message is read before any of it is done.
    expect(client.of('pong')).toEqual([])
  })

  it('of more than a mebibyte closes with 1009', async () => {
    const client = await attached()
    client.send({ type: 'turn', id: '1', input: 'x'.repeat(1_048_577) })
    expect((await client.closed).code).toBe(1009)
  })
})

describe('a flood', () => {
  it('of pings is answered, one by one', async () => {
    const client = await attached()
    for (let n = 0; n < 500; n += 1) client.send({ type: 'ping' })
    await until(() => client.of('pong').length === 500)
  })

  it('of pings whose answers cannot leave in time is cut off', async () => {
    const client = await attached()
    client.send(Array.from({ length: 5_000 }, () => ({ type: 'ping' })))
    expect(await client.closed).toEqual({ code: 4413, reason: 'too_slow' })
    expect(client.of('pong').length).toBeLessThan(2_000)
  })

  it('of requests is taken up to the limit and refused beyond it', async () => {
    const { requestsMax } = LIMITS
    const client = await attached({ key: `full ${keys}`, options: { agent: 'puppet', graceMs: 0 } })
    const ids = Array.from({ length: 60 }, (_, n) => `${n}`)
    client.send(ids.map((id) => ({ type: 'turn', id, input: `full ${id}` })))
    await until(() => client.of('reply').length >= ids.length - requestsMax)
    const refused = client.of('reply').filter(({ error }) => error?.code === 'too_many')
    expect(refused.map(({ id }) => id as string)).toEqual(ids.slice(requestsMax))
    // Those that were taken run all the same, one after the other.
    for (let n = 0; n < requestsMax; n += 1) (await server.puppet.turn(`full ${n}`)).end('x')
    await until(() => client.of('turn.done').length === requestsMax)
    expect(client.isClosed).toBe(false)
  })

  it('of hellos for one key makes one session', async () => {
    const key = `crowd ${keys}`
    const crowd = await Promise.all(
      Array.from({ length: 40 }, () => attached({ key, options: { graceMs: 0 } })),
    )
    const welcomes = crowd.map((client) => client.of('welcome')[0])
    expect(new Set(welcomes.map((welcome) => welcome?.['session'].id)).size).toBe(1)
    expect(new Set(welcomes.map((welcome) => welcome?.['attachment'])).size).toBe(40)
    expect(welcomes.filter((welcome) => welcome?.['isNew'])).toHaveLength(1)
  })

  it('of connections that say nothing is cleared away', async () => {
    const idle = Array.from({ length: 40 }, () => connectAnew({}, hasty))
    const ends = await Promise.all(idle.map(({ closed }) => closed))
    expect(new Set(ends.map(({ code }) => code))).toEqual(new Set([4413]))
    await hasty.assertNothingLeft([])
  })
})

describe('a hello that never ends', () => {
  it('is refused in time, although pieces of it keep coming', async () => {
    const client = connectAnew({}, hasty)
    await client.opened
    client.socket.send('{"type":"hello","v":1,"key":"', { fin: false })
    while (!client.isClosed) {
      client.socket.send('x', { fin: false }, () => undefined)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    expect(await client.closed).toMatchObject({ code: 4413 })
  })

  it('is refused in time by its bytes, too', async () => {
    const port = Number(new URL(hasty.url).port)
    const socket = connect(port, '127.0.0.1')
    const lines = [
      'GET /v1/connect HTTP/1.1',
      `Host: 127.0.0.1:${port}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}`,
    ]
    socket.write(`${lines.join('\r\n')}\r\n\r\n`)
    let heard = ''
    socket.on('data', (data) => {
      heard += data.toString('latin1')
    })
    await until(() => heard.includes('101 Switching'))
    // The beginning of a masked text message of 100 bytes, and then one byte at a time.
    socket.write(Buffer.from([0x81, 0x80 | 100, 0, 0, 0, 0]))
    const drip = setInterval(() => socket.write('x'), 1)
    await until(() => heard.includes('hello did not come in time'))
    clearInterval(drip)
    socket.destroy()
    await hasty.assertNothingLeft([])
  })
})

describe('prying', () => {
  it('tells nothing of sessions that do not exist', async () => {
    const client = connectAnew()
    client.send({ type: 'hello', v: 1, session: '../../etc/passwd' })
    expect(await client.closed).toMatchObject({ code: 4404 })
  })

  it('with a replayed token is refused, and the live connection goes on', async () => {
    const first = await attached({ key: `replay ${keys}`, options: { graceMs: 60_000 } })
    const [welcome] = first.of('welcome')
    await first.cut()
    const id = welcome?.['session'].id
    const resume = { attachment: welcome?.['attachment'], token: welcome?.['resume'] }
    const hello = { session: id, auth: { resume } }
    await until(async () => (await stateOf(id)).attachments[0]?.state === 'detached')
    const second = await attached({ ...hello, presence: true })
    second.send({ type: 'ready', epoch: 2 })
    await second.frame('attachment.confirmed')
    for (let n = 0; n < 5; n += 1) {
      const thief = connectAnew()
      thief.send({ type: 'hello', v: 1, ...hello, take: true })
      expect(await thief.closed).toEqual({ code: 4425, reason: 'token_reused' })
    }
    second.send({ type: 'ping' })
    await second.frame('pong')
    second.send({ type: 'bye' })
    await second.closed
  })
})

describe('a reader that stops reading', () => {
  it('is cut off with 4413, costs little, and comes back to everything', async () => {
    const [count, chars] = [80, 250_000]
    const key = `slow ${keys}`
    const options = { agent: 'flood', graceMs: 60_000 }
    const slow = await attached({ key, options })
    const other = await attached({ key })
    await other.frame('session.created')
    slow.socket.pause()
    other.send({ type: 'turn', id: '1', input: `${count}x${chars}` })
    // More than the kernels hold for a connection. The other client gets it all meanwhile.
    await other.frame('turn.done')
    const id = slow.of('welcome')[0]?.['session'].id
    await until(async () => (await stateOf(id)).attachments[0]?.state === 'detached')
    slow.socket.resume()
    expect(await slow.closed).toEqual({ code: 4413, reason: 'too_slow' })
    expect(slow.of('message.added').length).toBeLessThan(count)
    const resume = resumeOf(slow)
    const back = await attached({ session: id, auth: { resume }, after: slow.seen })
    await back.frame('turn.done')
    const heard = [...slow.of('message.added'), ...back.of('message.added')]
    expect(heard.map(({ text }) => Number.parseInt(text, 10))).toEqual(
      Array.from({ length: count }, (_, n) => n + 1),
    )
    for (const client of [back, other]) {
      client.send({ type: 'bye' })
      await client.closed
    }
  })

  it('is held no more than its share, however much there is to tell', async () => {
    const session = await server.holdfast.resolve({ agent: 'flood', graceMs: 0 })
    const clogged = new CloggedSocket()
    const connection = new Connection(server.hub, clogged, connectService)
    connection.receive(JSON.stringify({ type: 'hello', v: 1, session: session.id }))
    await until(() => clogged.sent.some((text) => text.includes('session.created')))
    clogged.isClogged = true
    await session.turn('400x20000')
    await clogged.closed
    expect(clogged.heldBytes).toBeLessThan(LIMITS.bufferedBytesMax + 300_000)
    expect(clogged.code).toBe(4413)
  })
})

describe('a page of somebody else', () => {
  let guarded: HoldfastServer

  beforeAll(async () => {
    guarded = await startServer({ holdfast: await openHoldfast({ store: 'memory:' }), port: 0 })
  })

  afterAll(() => guarded.close({ closeHoldfast: true }))

  it.each([
    ['another origin', { origin: 'https://evil.example' }, 403],
    ['no origin at all, but says so', { origin: 'null' }, 403],
    ['a name that only leads here', { host: 'evil.example' }, 403],
    ['another port of this machine', { origin: 'http://127.0.0.1:1' }, 403],
  ])('from %s does not get a socket', async (_, headers, status) => {
    expect(await upgradeStatus(guarded, '/v1/connect', headers)).toBe(status)
  })

  it('does not get a socket where there is none', async () => {
    expect(await upgradeStatus(guarded, '/v1/elsewhere', {})).toBe(404)
  })

  it('of the server itself does', async () => {
    expect(await upgradeStatus(guarded, '/v1/connect', { origin: guarded.url })).toBe(101)
  })
})

function nested(): string {
  return '{"a":'.repeat(DEEP) + '1' + '}'.repeat(DEEP)
}

function connectAnew(options: WireOptions = {}, { url } = server): WireClient {
  const client = new WireClient(url, options)
  clients.push(client)
  return client
}

/** A client on the session that is attacked, or on another one. */
async function attached(hello: object = {}): Promise<WireClient> {
  const target = 'session' in hello ? {} : { key: `attacked ${keys}` }
  const client = dial(server.url, { ...target, ...hello })
  clients.push(client)
  const welcome = await client.frame('welcome')
  sessions.add(welcome['session'].id)
  return client
}

function resumeOf(client: WireClient): object {
  const [welcome] = client.of('welcome')
  return { attachment: welcome?.['attachment'], token: welcome?.['resume'] }
}

function stateOf(id: string) {
  return server.holdfast.session(id).state()
}

/** Takes everything until it is clogged, and from then on nothing. */
class CloggedSocket implements Socket {
  readonly address = '127.0.0.1'
  readonly sent: string[] = []
  isClogged = false
  heldBytes = 0
  code = 0
  readonly closed: Promise<void>
  #close: () => void = () => undefined

  constructor() {
    this.closed = new Promise((resolve) => {
      this.#close = resolve
    })
  }

  get bufferedBytes(): number {
    return this.heldBytes
  }

  send(data: string | Uint8Array, sent?: () => void): void {
    if (this.isClogged) {
      this.heldBytes += data.length
      return
    }
    this.sent.push(typeof data === 'string' ? data : Buffer.from(data).toString())
    sent?.()
  }

  close(code: number): void {
    this.code = code
    this.#close()
  }

  cut(): void {
    this.#close()
  }
}

function upgradeStatus(
  { port }: HoldfastServer,
  path: string,
  headers: Record<string, string>,
): Promise<number> {
  const upgrade = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16).toString('base64'),
  }
  return new Promise((resolve, reject) => {
    const sent = request({ port, host: '127.0.0.1', path, headers: { ...upgrade, ...headers } })
    sent.on('upgrade', (response, socket) => {
      socket.destroy()
      resolve(response.statusCode ?? 0)
    })
    sent.on('response', (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    sent.on('error', reject)
    sent.end()
  })
}
