/** Properties of reading what a client says: whatever comes is refused as `bad_request`, or has its shape. */
import fc from 'fast-check'
import { HoldfastError } from '../../src/core/errors.ts'
import { readClientMessage, readHello } from '../../src/wire/client-frames.ts'

type Fields = Readonly<Record<string, unknown>>

const id = fc.string({ minLength: 1, maxLength: 64 })
const optional = <Value>(value: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> =>
  fc.option(value, { nil: undefined })

/** Hellos as the protocol has them. `undefined` fields are left out by JSON. */
export const hellos: fc.Arbitrary<Fields> = fc
  .record({
    type: fc.constant('hello'),
    v: fc.constant(1),
    options: optional(
      fc.record({
        agent: optional(fc.constantFrom('echo', 'slow', 'nobody')),
        reconnect: optional(fc.constantFrom('none', 'early', 'resume', 'reopen', 'never')),
        exclusive: optional(fc.boolean()),
        graceMs: optional(fc.nat()),
        ttlMs: optional(fc.option(fc.nat())),
        labels: optional(fc.dictionary(fc.string(), fc.jsonValue())),
      }),
    ),
    auth: optional(
      fc.record({
        token: optional(fc.string()),
        resume: optional(fc.record({ attachment: fc.string(), token: fc.string() })),
      }),
    ),
    role: optional(fc.constantFrom('driver', 'watcher')),
    answers: optional(fc.array(fc.string(), { maxLength: 4 })),
    after: optional(fc.record({ seq: fc.nat(9), delta: fc.nat(9) })),
    take: optional(fc.boolean()),
    presence: optional(fc.boolean()),
  })
  .chain((hello) =>
    fc
      .oneof(fc.record({ key: fc.string() }), fc.record({ session: fc.string() }))
      .map((target) => ({ ...hello, ...target })),
  )

const input = fc.oneof(
  fc.string(),
  fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 })).map((rest) => ({ ...rest, text: 'x' })),
)

/** Every other frame, right in all of its fields. */
export const frames: fc.Arbitrary<Fields> = fc.oneof(
  fc.record({ type: fc.constant('ready'), epoch: fc.nat(3) }),
  fc.record({
    type: fc.constant('turn'),
    id,
    input,
    busy: optional(fc.constantFrom('queue', 'reject', 'interrupt', 'collect', 'whatever')),
    waitMs: optional(fc.nat(5)),
    onDisconnect: optional(fc.constantFrom('continue', 'cancel')),
  }),
  fc.record({ type: fc.constant('cancel'), id, turn: fc.constantFrom('t2', 't3', 't4', 'x') }),
  fc.record({
    type: fc.constant('answer'),
    id,
    ask: fc.constantFrom('a3', 'a4', 'x'),
    answer: fc.jsonValue({ maxDepth: 3 }),
  }),
  fc.constantFrom({ type: 'ping' }, { type: 'pong' }),
)

/** Those that end something. */
export const endings: fc.Arbitrary<Fields> = fc.oneof(
  fc.record({ type: fc.constant('close'), id }),
  fc.constant({ type: 'bye' }),
)

/** Almost a frame: one field too much, wrong, or missing. */
const spoilt = fc
  .tuple(fc.oneof(hellos, frames, endings), fc.string(), fc.jsonValue(), fc.nat())
  .map(([frame, name, value, pick]): unknown => {
    const names = Object.keys(frame)
    const field = names[pick % names.length] ?? ''
    const { [field]: _, ...missing } = frame
    return [{ ...frame, [name]: value }, { ...frame, [field]: value }, missing][pick % 3]
  })

/** Text that could be anything, near the protocol and far from it. */
export const messages: fc.Arbitrary<string> = fc.oneof(
  fc.oneof(hellos, frames, endings).map((frame) => JSON.stringify(frame)),
  fc.array(fc.oneof(frames, endings), { maxLength: 5 }).map((all) => JSON.stringify(all)),
  spoilt.map((frame) => JSON.stringify(frame)),
  fc.array(spoilt, { maxLength: 3 }).map((all) => JSON.stringify(all)),
  fc.json(),
  fc.string(),
  fc.nat(4_000).map((depth) => `${'['.repeat(depth)}${']'.repeat(depth)}`),
  fc.nat(4_000).map((depth) => {
    const deep = `${'{"text":'.repeat(depth)}"x"${'}'.repeat(depth)}`
    return `{"type":"turn","id":"1","input":{"text":"x","deep":${deep}}}`
  }),
)

/** What may be in which field, written down a second time and in another way. */
const FIELDS: Readonly<Record<string, Readonly<Record<string, RegExp>>>> = {
  hello: {
    v: /^number$/,
    session: /^(string|undefined)$/,
    key: /^(string|undefined)$/,
    options: /^(object|undefined)$/,
    auth: /^(object|undefined)$/,
    role: /^(string|undefined)$/,
    answers: /^(array|undefined)$/,
    after: /^(object|undefined)$/,
    take: /^(boolean|undefined)$/,
    presence: /^(boolean|undefined)$/,
  },
  ready: { epoch: /^number$/ },
  turn: {
    id: /^string$/,
    input: /^(string|object)$/,
    busy: /^(string|undefined)$/,
    waitMs: /^(number|undefined)$/,
    onDisconnect: /^(string|undefined)$/,
  },
  cancel: { id: /^string$/, turn: /^string$/ },
  answer: { id: /^string$/, ask: /^string$/, answer: /^(?!undefined)/ },
  close: { id: /^string$/ },
  ping: {},
  pong: {},
  bye: {},
}

function kind(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}

function hasShape(frame: Fields): boolean {
  const { type, ...fields } = frame
  const shape = FIELDS[String(type)]
  if (shape === undefined || Object.keys(fields).some((name) => shape[name] === undefined)) {
    return false
  }
  return Object.entries(shape).every(([name, kinds]) => kinds.test(kind(fields[name])))
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}

/** Reads it; null if it was refused as it must be. Anything else that is thrown goes on. */
function read<Result>(reader: (message: string) => Result, message: string): Result | null {
  try {
    return reader(message)
  } catch (thrown) {
    if (thrown instanceof HoldfastError && thrown.code === 'bad_request') return null
    throw thrown
  }
}

/** True if whatever is read is refused as `bad_request`, or is what the protocol says. */
export function readsSoundly(message: string): boolean {
  const all = read(readClientMessage, message) ?? []
  const hello = read(readHello, message)
  const sound = all.every(
    (frame) => hasShape(frame) && depthOf(frame) < 80 && JSON.stringify(frame).length > 0,
  )
  const target = hello === null || (hello.session === undefined) !== (hello.key === undefined)
  return sound && target
}

/** True if a right message is read as what it says. */
export function readsAll(said: readonly Fields[]): boolean {
  const told = JSON.stringify(said)
  return JSON.stringify(readClientMessage(told)) === told
}
