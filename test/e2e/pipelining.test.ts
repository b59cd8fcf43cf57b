/** Requests that a client sends before it has its answer, all on one connection. */
import { connect, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtinAgents, type Diagnostic } from 'holdfast'
import { until } from '../support/gate.ts'
import { Puppet } from '../support/puppet.ts'
import { serve, type TestServer } from '../support/server.ts'

/** A connection that sends what it is told to, and keeps what it hears. */
class Pipe {
  heard = ''
  isClosed = false
  readonly #socket: Socket

  constructor(url: string) {
    this.#socket = connect(Number(new URL(url).port), '127.0.0.1')
    this.#socket.on('data', (data) => {
      this.heard += data.toString('latin1')
    })
    this.#socket.on('close', () => {
      this.isClosed = true
    })
    this.#socket.on('error', () => undefined)
  }

  write(text: string): void {
    this.#socket.write(text)
  }

  close(): void {
    this.#socket.destroy()
  }

  get answers(): number {
    return this.heard.split('HTTP/1.1 ').length - 1
  }
}

const HEALTH = 'GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'

const diagnostics: Diagnostic[] = []
const puppet = new Puppet()
let server: TestServer
let pipes: Pipe[] = []
let keys = 0

beforeAll(async () => {
  server = await serve({
    agents: { ...builtinAgents, puppet: puppet.agent },
    onDiagnostic: (diagnostic) => {
      if (diagnostic.code === 'client_refused') diagnostics.push(diagnostic)
    },
  })
})

afterAll(() => server.close())

afterEach(() => {
  for (const pipe of pipes.splice(0)) pipe.close()
})

function pipe(): Pipe {
  const made = new Pipe(server.url)
  pipes.push(made)
  return made
}

/** A turn of the puppet in a session of its own; its input is its name. */
function turn(name: string, fields: object = {}): string {
  return post(`/v1/keys/pipelined-${name}/turns`, { agent: 'puppet', input: name, ...fields })
}

function post(path: string, fields: object): string {
  const body = JSON.stringify(fields)
  const type = 'Content-Type: application/json'
  const length = `Content-Length: ${body.length}`
  return `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${type}\r\n${length}\r\n\r\n${body}`
}

function name(): string {
  keys += 1
  return `n${keys}`
}

async function sessions(name: string): Promise<number> {
  return (await server.get(`/v1/sessions?key=pipelined-${name}`)).body.sessions.length
}

describe('requests on one connection', () => {
  it('are answered one at a time and in order', async () => {
    const [first, second] = [name(), name()]
    const client = pipe()
    client.write(turn(first) + turn(second) + HEALTH)
    const running = await puppet.turn(first)
    // Others are served meanwhile, and what waits has not begun.
    expect(await sessions(second)).toBe(0)
    expect(client.heard).toBe('')
    running.end('one')
    ;(await puppet.turn(second)).end('two')
    await until(() => client.answers === 3)
    expect(client.heard.indexOf('"one"')).toBeLessThan(client.heard.indexOf('"two"'))
    expect(client.heard.indexOf('"two"')).toBeLessThan(client.heard.indexOf('"status":"ok"'))
  })

  it('may have bodies that come in pieces, and expectations', async () => {
    const [first, second] = [name(), name()]
    const client = pipe()
    const long = turn(second, { input: { text: second, pad: 'x'.repeat(150_000) } })
    client.write(turn(first) + long.slice(0, 100_000))
    const running = await puppet.turn(first)
    client.write(long.slice(100_000, 110_000))
    running.end('one')
    client.write(long.slice(110_000) + HEALTH.replace('\r\n\r\n', '\r\nExpect: much\r\n\r\n'))
    ;(await puppet.turn(second)).end('two')
    await until(() => client.answers === 3)
    expect(client.heard.match(/HTTP\/1.1 200/g)).toHaveLength(3)
  })

  it('are served although the body of one that was refused is not read', async () => {
    const first = name()
    const client = pipe()
    client.write(turn(first) + post('/nowhere', { pad: 'x'.repeat(200_000) }) + HEALTH)
    ;(await puppet.turn(first)).end('one')
    await until(() => client.answers === 3)
    expect(client.heard.match(/HTTP\/1.1 \d+/g)).toEqual(
      ['200', '404', '200'].map((status) => `HTTP/1.1 ${status}`),
    )
  })

  it('end with the answer that closes it', async () => {
    const [first, second] = [name(), name()]
    const client = pipe()
    const closing = turn(first).replace('\r\n', '\r\nConnection: close\r\n')
    client.write(closing + turn(second))
    ;(await puppet.turn(first)).end('one')
    await until(() => client.isClosed)
    expect(client.answers).toBe(1)
    expect(client.heard).toMatch(/^HTTP\/1\.1 200 /)
    expect(await sessions(second)).toBe(0)
  })

  it('end with a request to upgrade it before its time', async () => {
    const client = pipe()
    const upgrade =
      'GET /v1/connect HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n'
    client.write(turn(name()) + upgrade)
    await until(() => client.isClosed)
    expect(client.heard).not.toContain('101')
  })
})

describe('a caller that goes while requests wait behind its own', () => {
  it.each([
    ['without a body', () => HEALTH],
    ['with a body', () => turn(name(), { input: 'x'.repeat(100_000) })],
    ['with half a body', () => turn(name(), { input: 'x'.repeat(200_000) }).slice(0, 150_000)],
  ])('is noticed, whether they come %s', async (_, behind) => {
    const first = name()
    const client = pipe()
    client.write(turn(first, { onDisconnect: 'cancel' }) + behind())
    const { context } = await puppet.turn(first)
    client.close()
    await until(() => context.signal.aborted)
  })
})

describe('a connection on which too much waits', () => {
  it.each([
    ['many requests', HEALTH.repeat(5_000)],
    ['bodies', turn('never', { input: 'x'.repeat(90_000) }).repeat(8)],
    ['one body', turn('never', { input: 'x'.repeat(900_000) })],
    [
      'turns that are only queued',
      turn('never').replace('Host', 'Prefer: respond-async\r\nHost').repeat(900),
    ],
  ])('is closed and told of, and nothing of it has begun: %s', async (_, flood) => {
    const first = name()
    diagnostics.length = 0
    const client = pipe()
    client.write(turn(first))
    const running = await puppet.turn(first)
    client.write(flood)
    await until(() => client.isClosed)
    expect(client.heard).toBe('')
    expect(await sessions('never')).toBe(0)
    expect(diagnostics).toMatchObject([
      { code: 'client_refused', facts: { reason: 'pipelining', address: '127.0.0.1' } },
    ])
    running.end('one')
  })

  it('is closed behind a stream too', async () => {
    const { id } = (await server.post('/v1/sessions', {})).body
    const client = pipe()
    const stream = `GET /v1/sessions/${id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n`
    client.write(stream)
    await until(() => client.heard.includes('session.created'))
    client.write(stream.repeat(1_000))
    await until(() => client.isClosed)
    expect(client.answers).toBe(1)
  })
})
