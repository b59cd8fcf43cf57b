/**
 * The frames that a client sends, and reading them from text that could be anything. A wrong frame
 * is refused. Values that only the core can judge (a policy, the length of a label) are left to it.
 */
import { Type, type Static, type TProperties } from '../schema/typebox.ts'
import { HoldfastError } from '../core/errors.ts'
import type { BusyPolicy, Input, ReconnectPolicy, Settings, SettingsChange } from '../core/index.ts'
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
  type RefuseField,
} from '../schema/contract.ts'

const text = Type.String()
const id = Type.String({ minLength: 1, maxLength: 64 })
/** How much of the name of a wrong field is shown. */
const FIELD_CHARS_MAX = 64
const WHOLE = { minimum: 0, maximum: Number.MAX_SAFE_INTEGER }
const whole = Type.Integer(WHOLE)
const settings = <Value>() => Type.Unsafe<Value>(Type.Record(text, Type.Unknown()))

export const HelloFrame = Type.Object(
  {
    type: Type.Literal('hello'),
    v: Type.Integer({
      minimum: 0,
      description: '1. The server refuses another version (`version_unsupported`, 4426)',
    }),
    ...optional({
      session: Type.String({ description: 'the id of an existing session; or' }),
      key: Type.String({ description: 'a key: the server creates its session if necessary' }),
      options: Type.Object(
        optional({
          agent: text,
          reconnect: Type.Unsafe<ReconnectPolicy>(text),
          exclusive: Type.Boolean(),
          graceMs: whole,
          ttlMs: orNull(whole),
          labels: Type.Unsafe<Record<string, string>>(Type.Record(text, Type.Unknown())),
          settings: settings<Settings>(),
        }),
        {
          ...EXACT,
          description:
            'options for creating the session: `agent`, `reconnect`, `exclusive`, `graceMs`, ' +
            '`ttlMs`, `labels`, `settings`',
        },
      ),
      auth: Type.Object(
        optional({
          token: text,
          link: text,
          resume: Type.Object({ attachment: text, token: text }, EXACT),
        }),
        {
          ...EXACT,
          description:
            '`token` (a bearer token), `link` (the token of a link to this session), ' +
            '`resume: {attachment, token}`',
        },
      ),
      role: oneOf(['driver', 'watcher'], {
        description: '`driver` (default) takes part, `watcher` only reads',
      }),
      answers: list({ maxItems: 64, description: 'the kinds of ask that the client answers' }),
      after: Type.Object(
        { seq: whole, delta: whole },
        {
          ...EXACT,
          description:
            '`{seq, delta}`: the position of the client. Without it the stream starts at the ' +
            'beginning',
        },
      ),
      received: Type.Integer({
        ...WHOLE,
        description:
          'on a [connection to a browser](cdp.md): how many messages of the server have come',
      }),
      take: Type.Boolean({
        description: '`true`: take over an exclusive session; only after a decision of the user',
      }),
      presence: Type.Boolean({
        description:
          '`true`: include events about attachments and links. Without it the server omits them, ' +
          'so `seq` may skip',
      }),
    }),
  },
  EXACT,
)

function frame<const Name extends string, Fields extends TProperties>(
  name: Name,
  description: string,
  fields: Fields,
) {
  return Type.Object({ type: Type.Literal(name), ...fields }, { ...EXACT, description })
}

export const ClientFrames = Type.Union([
  HelloFrame,
  frame('turn', 'runs a turn; the `reply` follows when it has started', {
    id,
    input: input<Input>(),
    ...optional({
      busy: Type.Unsafe<BusyPolicy>(text),
      waitMs: whole,
      onDisconnect: oneOf(['continue', 'cancel']),
      settings: settings<Settings>(),
    }),
  }),
  frame('configure', 'changes the settings of the session; null takes one back', {
    id,
    settings: settings<SettingsChange>(),
  }),
  frame('cancel', 'cancels a turn or a waiting request', { id, turn: text }),
  frame('answer', 'answers an ask; the first valid answer wins', {
    id,
    ask: text,
    answer: anything(),
  }),
  frame('close', 'closes the session for all clients', { id }),
  frame('ready', 'confirms the `welcome`: the token before it is no longer needed', {
    epoch: whole,
  }),
  frame('ack', 'to a browser: so many messages have come', { received: whole }),
  frame('ping', 'liveness', {}),
  frame('pong', 'liveness', {}),
  frame('bye', 'ends the attachment at once', {}),
])

export type Hello = Static<typeof HelloFrame>
export type ClientFrame = Static<typeof ClientFrames>

const READERS = new Map<string, (value: unknown, refuse: RefuseField) => unknown>(
  ClientFrames.anyOf.map((schema) => [schema.properties.type.const, contract(schema)]),
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
  const [first, ...rest] = readClientMessage(message)
  if (first?.type !== 'hello' || rest.length > 0) throw malformed('the first frame must be hello')
  return first
}

export function readHello(message: string): Hello {
  const hello = readReplayHello(message)
  if ((hello.session === undefined) !== (hello.key === undefined)) return hello
  throw malformed('hello must name a session or a key')
}

function readFrame(value: unknown): ClientFrame {
  const type = isRecord(value) ? value['type'] : undefined
  if (typeof type !== 'string') throw malformed('a frame must be an object with a type')
  const read = READERS.get(type)
  if (read === undefined) throw malformed('a frame has an unknown type')
  return read(value, (field, problem) =>
    malformed(`${type}: ${field.slice(0, FIELD_CHARS_MAX)} ${problem}`),
  ) as ClientFrame
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
