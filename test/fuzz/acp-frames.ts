/**
 * Properties of the ACP door: whatever a client says, each of its requests has one answer, nothing
 * is an internal error, and the connection goes on.
 */
import fc from 'fast-check'
import { LOCAL } from '../../src/core/index.ts'
import { AcpConnection, type AcpSocket } from '../../src/doors/acp/connection.ts'
import { readRpcMessage, RpcError } from '../../src/doors/json-rpc.ts'
import { HttpStreams } from '../../src/server/http-streams.ts'
import { ACP_METHODS } from '../../src/doors/acp/methods.ts'
import { Hub } from '../../src/doors/connect/hub.ts'
import { openHoldfast } from '../../src/open.ts'
import { until } from '../support/gate.ts'

const METHODS = Object.keys(ACP_METHODS)
const value = fc.jsonValue({ maxDepth: 3 })
/** Names of sessions: of one that is there, and of others. */
const SESSION = 'SESSION'
const session = fc.constantFrom(SESSION, SESSION, 'none', '', 7, null)
const meta = fc.option(
  fc.record(
    {
      holdfast: fc.oneof(
        value,
        fc.record(
          {
            key: fc.constantFrom('a', 'b', '', 7),
            agent: fc.constantFrom('echo', 'nobody', 3),
            role: fc.constantFrom('driver', 'watcher', 'king'),
            take: fc.boolean(),
            replay: fc.boolean(),
            at: fc.constantFrom('0.0.0.0', '1.1.0.0', '9.1.0.0', '1.99.0.0', 'x'),
            attachment: fc.string(),
            token: fc.string(),
            settings: value,
          },
          { requiredKeys: [] },
        ),
      ),
    },
    { requiredKeys: [] },
  ),
)
const block = fc.oneof(
  fc.record({ type: fc.constant('text'), text: fc.oneof(fc.string(), value) }),
  fc.record({ type: fc.constant('image'), mimeType: fc.string(), data: fc.string() }),
  fc.record({ type: fc.constant('resource_link'), name: fc.string(), uri: fc.string() }),
  fc.record({ type: fc.constant('resource'), resource: value }),
  value,
)
const fields = fc.record(
  {
    sessionId: session,
    cwd: fc.oneof(fc.constantFrom('/', ''), value),
    mcpServers: fc.oneof(fc.constant([]), value),
    prompt: fc.oneof(fc.array(block, { maxLength: 3 }), value),
    modeId: fc.oneof(fc.string(), value),
    configId: fc.constantFrom('mode', 'model', 'other'),
    value,
    cursor: fc.oneof(fc.string(), value),
    role: fc.constantFrom('driver', 'watcher', 'king'),
    requestId: fc.oneof(fc.string(), fc.nat(), value),
    protocolVersion: fc.oneof(fc.constant(1), value),
    clientCapabilities: value,
    _meta: meta,
  },
  { requiredKeys: [] },
)
const method = fc.oneof(fc.constantFrom(...METHODS), fc.string())
const params = fc.oneof({ weight: 5, arbitrary: fields }, { weight: 1, arbitrary: value })
const jsonrpc = fc.constantFrom('2.0', '2.0', '2.0', '2.0', '1.0', 2)

type Frame = { readonly text: string; readonly isTorn: boolean }

const message = fc.oneof(
  { weight: 6, arbitrary: fc.record({ jsonrpc, id: fc.constant('ID'), method, params }) },
  { weight: 2, arbitrary: fc.record({ jsonrpc, method, params }) },
  {
    weight: 1,
    arbitrary: fc.record(
      { jsonrpc, id: fc.oneof(fc.constant(`${SESSION}/a1`), value), result: value, error: value },
      { requiredKeys: ['jsonrpc', 'id'] },
    ),
  },
  { weight: 1, arbitrary: value },
)
/** What a client may send: messages, pieces of messages, and anything. */
export const acpFrames: fc.Arbitrary<readonly Frame[]> = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: message.map((one) => ({ text: JSON.stringify(one), isTorn: false })) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(message, fc.double({ min: 0, max: 1, noNaN: true }))
        .map(([one, part]) => JSON.stringify(one).slice(0, -1 - Math.floor(part * 20)))
        .map((text) => ({ text, isTorn: true })),
    },
    { weight: 1, arbitrary: fc.string().map((text) => ({ text, isTorn: true })) },
  ),
  { minLength: 1, maxLength: 60 },
)

/** What a connection is played on, and how a client says something on it. */
type Wire = {
  readonly socket: AcpSocket
  readonly say: (connection: AcpConnection, text: string) => void
}

function socketWire(told: (message: object) => void, closed: (code: number) => void): Wire {
  const socket: AcpSocket = {
    ...{ address: 'fuzz', bufferedBytes: 0, heardAt: 0 },
    send: (data) => told(JSON.parse(Buffer.from(data as Uint8Array).toString()) as object),
    close: closed,
    cut: () => closed(1006),
    ping: () => undefined,
  }
  const say: Wire['say'] = (connection, text) => connection.receive(Buffer.from(text), false)
  return { socket, say }
}

function httpWire(told: (message: object) => void, closed: (code: number) => void): Wire {
  const { signal } = new AbortController()
  const socket = new HttpStreams({
    ...{ address: 'fuzz', reportSlow: () => undefined, onSessionLost: () => undefined },
    onClose: closed,
  })
  const opened = new Set<string | null>()
  const open = async (session: string | null): Promise<void> => {
    opened.add(session)
    for await (const text of socket.read(session, signal)) {
      for (const [, json = ''] of text.matchAll(/^data: (.*)$/gm)) {
        const message = JSON.parse(json) as { readonly result?: { readonly sessionId?: string } }
        told(message)
        const { sessionId = null } = message.result ?? {}
        if (!opened.has(sessionId)) void open(sessionId)
      }
    }
  }
  void open(null)
  void socket.greeting.then((text) => told(JSON.parse(text) as object))
  return {
    socket,
    say: (connection, text) => {
      try {
        const message = readRpcMessage(text)
        socket.took(message)
        connection.accept(message, text)
      } catch (thrown) {
        if (!(thrown instanceof RpcError)) throw thrown
        // The answer to the request, with status 400.
        told({ jsonrpc: '2.0', id: thrown.id, error: thrown.body })
      }
    },
  }
}

/** Plays frames on one connection; returns what is wrong with the answers. */
export async function playAcp(
  frames: readonly Frame[],
  isHttp = false,
): Promise<readonly string[]> {
  const problems: string[] = []
  const holdfast = await openHoldfast({
    store: 'memory:',
    agents: { echo: async ({ text }) => text },
    onDiagnostic: ({ code, facts }) => {
      if (code === 'request_failed') problems.push(`failed: ${String(facts['error'])}`)
    },
  })
  const hub = new Hub({ holdfast })
  const said: any[] = []
  let closed: number | null = null
  const wire = (isHttp ? httpWire : socketWire)(
    (message) => void said.push(message),
    (code) => (closed = code),
  )
  const { socket } = wire
  const connection = new AcpConnection({
    ...{ hub, socket, holdfast, caller: { by: LOCAL, access: null }, defaults: {} },
    ...{ positions: null, isDraining: () => false, forwarding: { path: '/acp', headers: {} } },
    onEnd: () => undefined,
  })
  const say = (text: string): void => wire.say(connection, text)
  const request = (id: string, method: string, given: object): void =>
    say(JSON.stringify({ jsonrpc: '2.0', id, method, params: given }))
  const answered = (id: string): any[] =>
    said.filter((one) => one.id === id && one.method === undefined)
  try {
    request('first', 'initialize', { protocolVersion: 1 })
    request('made', 'session/new', { cwd: '/', mcpServers: [] })
    await until(() => answered('made').length === 1)
    const { sessionId } = answered('made')[0].result
    const expected: string[] = []
    for (const [index, { text }] of frames.entries()) {
      const own = text.replaceAll(SESSION, sessionId).replace('"id":"ID"', `"id":"r${index}"`)
      if (isRequest(own)) expected.push(`r${index}`)
      say(own)
      if (index % 8 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    await until(() => expected.every((id) => answered(id).length > 0))
    for (const id of expected) {
      if (answered(id).length !== 1)
        problems.push(`${id} was answered ${answered(id).length} times`)
    }
    for (const { error } of said) {
      if (error?.data?.code === 'internal') problems.push(`internal: ${error.message}`)
      if (error !== undefined && typeof error.data?.code !== 'string')
        problems.push(`no code: ${JSON.stringify(error)}`)
    }
    request('last', 'initialize', { protocolVersion: 1 })
    await until(() => answered('last').length === 1)
    if (answered('last')[0].result?.protocolVersion !== 1) problems.push('it does not go on')
    if (closed !== null) problems.push(`it was closed with ${String(closed)}`)
    for (let turn = 0; turn < 50 && socket.bufferedBytes > 0; turn += 1) {
      await new Promise((resolve) => setImmediate(resolve))
    }
    if (socket.bufferedBytes > 0) problems.push('something waits in an open stream')
  } finally {
    connection.closed(1000)
    socket.close(1000, 'over')
    hub.close()
    await holdfast.close()
  }
  return problems
}

/** Whether it can be read as a request, which has an answer by its own id. */
function isRequest(text: string): boolean {
  try {
    const { jsonrpc: version, id, method: named } = JSON.parse(text) as Record<string, unknown>
    return (
      version === '2.0' && typeof id === 'string' && /^r\d+$/.test(id) && typeof named === 'string'
    )
  } catch {
    return false
  }
}
