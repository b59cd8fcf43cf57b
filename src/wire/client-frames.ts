/**
 * What a client says, read from text that could be anything. A wrong frame is refused, never
 * guessed at. The types are in `frames.ts`: a page that imports them needs no schema.
 */
import { Type, type TProperties, type TSchema } from '@sinclair/typebox'
import { HoldfastError } from '../core/errors.ts'
import {
  anything,
  contract,
  EXACT,
  input,
  isRecord,
  list,
  oneOf,
  optional,
  orNull,
} from '../schema/contract.ts'
import type { ClientFrame, Hello } from './frames.ts'

const text = Type.String()
const id = Type.String({ minLength: 1, maxLength: 64 })
const whole = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const flag = Type.Boolean()
const exact = <Fields extends TProperties>(fields: Fields) => Type.Object(fields, EXACT)

const HELLO = {
  v: whole,
  ...optional({
    session: text,
    key: text,
    options: exact(
      optional({
        agent: text,
        reconnect: text,
        exclusive: flag,
        graceMs: whole,
        ttlMs: orNull(whole),
        labels: Type.Object({}),
      }),
    ),
    auth: exact(
      optional({ token: text, link: text, resume: exact({ attachment: text, token: text }) }),
    ),
    role: oneOf(['driver', 'watcher']),
    answers: list({ maxItems: 64 }),
    after: exact({ seq: whole, delta: whole }),
    received: whole,
    take: flag,
    presence: flag,
  }),
}

const FIELDS: Readonly<Record<ClientFrame['type'], TProperties>> = {
  hello: HELLO,
  ready: { epoch: whole },
  turn: {
    id,
    input: input(),
    ...optional({ busy: text, waitMs: whole, onDisconnect: oneOf(['continue', 'cancel']) }),
  },
  cancel: { id, turn: text },
  answer: { id, ask: text, answer: anything() },
  close: { id },
  ack: { received: whole },
  ping: {},
  pong: {},
  bye: {},
}

const READERS = new Map(
  Object.entries(FIELDS).map(([type, fields]) => {
    const schema: TSchema = exact({ type: text, ...fields })
    return [type, contract(schema)]
  }),
)

/** The frames of one message: one, or an array of them. */
export function readClientMessage(message: string): readonly ClientFrame[] {
  const value = parse(message)
  const frames = Array.isArray(value) ? value : [value]
  if (frames.length === 0) throw malformed('a message must hold a frame')
  return frames.map(readFrame)
}

/** The first message of a connection to a browser, which its address names. */
export function readReplayHello(message: string): Hello {
  const [frame, ...rest] = readClientMessage(message)
  if (frame?.type !== 'hello' || rest.length > 0) throw malformed('the first frame must be hello')
  return frame
}

/** The first message of a connection to a session. */
export function readHello(message: string): Hello {
  const hello = readReplayHello(message)
  if ((hello.session === undefined) !== (hello.key === undefined)) return hello
  throw malformed('hello must name a session or a key')
}

function readFrame(value: unknown): ClientFrame {
  if (!isRecord(value) || typeof value['type'] !== 'string') {
    throw malformed('a frame must be an object with a type')
  }
  const { type } = value
  const read = READERS.get(type)
  if (read === undefined) throw malformed('a frame has an unknown type')
  // Names come from the client.
  const refuse = (field: string, problem: string): HoldfastError =>
    malformed(`${type}: ${field.slice(0, 64)} ${problem}`)
  return read(value, refuse) as ClientFrame
}

function parse(message: string): unknown {
  try {
    return JSON.parse(message)
  } catch {
    throw malformed('a message must be JSON')
  }
}

function malformed(problem: string): HoldfastError {
  return new HoldfastError('bad_request', problem)
}
