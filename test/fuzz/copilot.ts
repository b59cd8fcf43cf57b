/**
 * Properties of the Copilot door's framing and of its connections: whatever bytes come, in whatever
 * pieces, a frame is read as what it says, or its connection is ended; nothing else happens.
 */
import fc from 'fast-check'
import { asHoldfastError, type Holdfast } from '../../src/core/index.ts'
import { openGate, type Socket } from '../../src/doors/connect/socket.ts'
import { CopilotDoor } from '../../src/doors/copilot/door.ts'
import { FrameReader, frameOf } from '../../src/doors/copilot/framing.ts'
import { readRpcMessage, RpcError } from '../../src/doors/json-rpc.ts'
import { openHoldfast } from '../../src/open.ts'
import { until } from '../support/gate.ts'

const MESSAGE_BYTES_MAX = 4_096

const names = fc.constantFrom(
  ...['connect', 'ping', 'session.create', 'session.send', 'session.resume', 'session.delete'],
  ...['session.list', 'session.getMessages', 'session.abort', 'session.detach', 'toString'],
  ...['session.permissions.handlePendingPermissionRequest', '__proto__', 'session.mode.set'],
)
const ids = fc.oneof(fc.integer(), fc.string({ maxLength: 12 }), fc.constant(null), fc.double())
const sessionIds = fc.constantFrom(
  'one',
  'two',
  '',
  'x'.repeat(600),
  '../etc',
  '\u0000',
  'A'.repeat(22),
)
const params = fc.oneof(
  fc.json({ maxDepth: 2 }).map((text) => JSON.parse(text) as unknown),
  fc.record(
    {
      sessionId: fc.oneof(sessionIds, fc.integer()),
      prompt: fc.oneof(fc.string(), fc.integer()),
      model: fc.constantFrom('echo', 'ask', 'none', 7),
      requestId: fc.string(),
      result: fc.record({ kind: fc.string() }),
      mode: fc.constantFrom('enqueue', 'immediate', 'plan', 3),
      tools: fc.array(fc.record({ name: fc.string() }), { maxLength: 2 }),
    },
    { requiredKeys: [] },
  ),
)
const messages = fc.oneof(
  fc.record(
    { jsonrpc: fc.constantFrom('2.0', '1.0'), id: ids, method: names, params },
    { requiredKeys: ['jsonrpc', 'method'] },
  ),
  fc.record(
    { jsonrpc: fc.constant('2.0'), id: ids, result: fc.json(), error: fc.json() },
    { requiredKeys: ['jsonrpc', 'id'] },
  ),
  fc.json({ maxDepth: 2 }).map((text) => JSON.parse(text) as unknown),
)

/** Frames that are right, with whatever in them. */
export const rightFrames = fc.array(messages, { maxLength: 6 }).map((all) => {
  return all.map((message) => JSON.stringify(message)).filter((text) => text !== '')
})

export function bytesOf(text: string): Buffer {
  return Buffer.concat(frameOf(Buffer.from(text)).map((part) => Buffer.from(part)))
}

/** What may come over a connection: frames, frames with a wrong byte, and anything at all. */
export const bytes: fc.Arbitrary<Buffer> = fc.oneof(
  { weight: 3, arbitrary: rightFrames.map((texts) => Buffer.concat(texts.map(bytesOf))) },
  {
    weight: 2,
    arbitrary: fc.tuple(rightFrames, fc.nat(), fc.nat(255)).map(([texts, at, byte]) => {
      const all = Buffer.concat(texts.map(bytesOf))
      if (all.length > 0) all[at % all.length] = byte
      return all
    }),
  },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((data) => Buffer.from(data)) },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(
        'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n',
        'POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}',
        'Content-Length: 2\r\nHost: x\r\n\r\n{}',
        'Content-Length: 99999999999\r\n\r\n',
        'Content-Length: -1\r\n\r\n',
        'Content-Length: 0\r\n\r\n',
        'Content-Length: 2\n\n{}',
        'content-length: 2\r\n\r\n{}',
        'Content-Type: x\r\n'.repeat(40),
      )
      .map((text) => Buffer.from(text)),
  },
)

/** How a network divides bytes. */
export const cuts = fc.array(fc.nat(), { maxLength: 12 })

export function pieces(all: Buffer, at: readonly number[]): readonly Buffer[] {
  const places = [...new Set(at.map((place) => place % (all.length + 1)))].toSorted((a, b) => a - b)
  return [0, ...places].map((from, index) => all.subarray(from, places[index] ?? all.length))
}

/** What a reader makes of it, and whether it ended the connection. */
export function readAll(chunks: readonly Buffer[]): { texts: string[]; code: string | null } {
  const reader = new FrameReader(() => MESSAGE_BYTES_MAX)
  const texts: string[] = []
  try {
    for (const chunk of chunks) {
      for (const text of reader.push(chunk)) texts.push(text)
      if (reader.bytes > MESSAGE_BYTES_MAX) throw new TypeError('it keeps too much')
    }
    return { texts, code: null }
  } catch (thrown) {
    return { texts, code: asHoldfastError(thrown).code }
  }
}

/** The same, however the bytes are divided; and no error but the two that a client can cause. */
export function readsAlike(all: Buffer, at: readonly number[]): boolean {
  const whole = readAll([all])
  const parts = readAll(pieces(all, at))
  const isKnown = [null, 'bad_request', 'message_too_large'].includes(whole.code)
  return isKnown && JSON.stringify(whole) === JSON.stringify(parts)
}

/** Right frames are read as they were written. */
export function readsRight(texts: readonly string[], at: readonly number[]): boolean {
  const { texts: read, code } = readAll(pieces(Buffer.concat(texts.map(bytesOf)), at))
  return code === null && JSON.stringify(read) === JSON.stringify(texts)
}

/** A message is read, or refused as what it is. */
export function readsMessage(text: string): boolean {
  try {
    return ['request', 'notification', 'response'].includes(readRpcMessage(text).type)
  } catch (thrown) {
    return thrown instanceof RpcError
  }
}

/** A connection in the hand of a test: what the door says, and whether it has ended it. */
class FakeSocket implements Socket {
  readonly address = '10.0.0.1'
  readonly bufferedBytes = 0
  readonly said: any[] = []
  isCut = false

  send(data: string | Uint8Array, sent?: () => void): void {
    this.said.push(JSON.parse(Buffer.from(data as Uint8Array).toString()))
    sent?.()
  }
  close(): void {
    this.isCut = true
  }
  cut(): void {
    this.isCut = true
  }
}

/** A server of echoing agents whose doors get random frames. */
export class FrameTarget {
  readonly #holdfast: Holdfast
  readonly #door: CopilotDoor
  frames = 0

  constructor(holdfast: Holdfast) {
    this.#holdfast = holdfast
    this.#door = new CopilotDoor({ holdfast, gate: openGate, limits: { requestsMax: 8 } })
  }

  static async open(): Promise<FrameTarget> {
    return new FrameTarget(await openHoldfast({ store: 'memory:', onDiagnostic: () => undefined }))
  }

  /** What is wrong with how these frames were taken; the first says whether `connect` comes first. */
  async play(texts: readonly string[], isConnected: boolean): Promise<readonly string[]> {
    const socket = new FakeSocket()
    const connection = this.#door.connect(socket)
    const hello = JSON.stringify({ jsonrpc: '2.0', id: 'hello', method: 'connect', params: {} })
    if (isConnected) {
      connection.receive(hello)
      await until(() => connection.isAdmitted)
    }
    const asked: unknown[] = isConnected ? ['hello'] : []
    for (const text of texts) {
      if (connection.isOver) break
      this.frames += 1
      const id = requestId(text)
      connection.receive(text)
      if (id !== undefined) asked.push(id)
    }
    const answers = () => socket.said.filter(({ method }) => method === undefined)
    await until(() => socket.isCut || answers().length >= asked.length)
    connection.closed()
    await until(() => this.#door.counts.connections + this.#door.counts.attached === 0)
    const ids = answers().map(({ id }) => JSON.stringify(id))
    const problems = new Set(ids).size === ids.length ? [] : ['a request was answered twice']
    const internal = answers().filter(({ error }) => error?.data?.code === 'internal')
    return [...problems, ...internal.map(({ error }) => `internal: ${error.message}`)]
  }

  async close(): Promise<void> {
    this.#door.close()
    await this.#holdfast.close()
  }
}

/** Undefined: it asks for no answer, or is no request at all. */
function requestId(text: string): unknown {
  try {
    const message = readRpcMessage(text)
    return message.type === 'request' ? message.id : undefined
  } catch {
    return undefined
  }
}
