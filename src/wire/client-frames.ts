/**
 * What a client says, read from text that could be anything. A wrong frame is refused, never
 * guessed at.
 */
import { HoldfastError } from '../core/errors.ts'
import type { ClientFrame, Hello } from './frames.ts'

type Check = (value: unknown) => boolean
type Shape = Readonly<Record<string, Check>>

/** How deep an input or an answer may nest, as in a request's body. */
const NESTING_MAX = 64

const text: Check = (value) => typeof value === 'string'
const id: Check = (value) => typeof value === 'string' && value !== '' && value.length <= 64
const whole: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0
const flag: Check = (value) => typeof value === 'boolean'
const anything: Check = (value) => value !== undefined && !nestsTooDeep(value)
const texts: Check = (value) => Array.isArray(value) && value.length <= 64 && value.every(text)
const input: Check = (value) =>
  text(value) || (isRecord(value) && text(value['text']) && !nestsTooDeep(value))
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value)
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value)
const oneOf =
  (...values: string[]): Check =>
  (value) =>
    values.some((known) => known === value)
const shaped =
  (shape: Shape): Check =>
  (value) =>
    isRecord(value) && misfit(value, shape) === null

const HELLO: Shape = {
  v: whole,
  session: optional(text),
  key: optional(text),
  options: optional(
    shaped({
      agent: optional(text),
      reconnect: optional(text),
      exclusive: optional(flag),
      graceMs: optional(whole),
      ttlMs: optional(orNull(whole)),
      labels: optional(isRecord),
    }),
  ),
  auth: optional(
    shaped({
      token: optional(text),
      link: optional(text),
      resume: optional(shaped({ attachment: text, token: text })),
    }),
  ),
  role: optional(oneOf('driver', 'watcher')),
  answers: optional(texts),
  after: optional(shaped({ seq: whole, delta: whole })),
  received: optional(whole),
  take: optional(flag),
  presence: optional(flag),
}

const SHAPES: Readonly<Record<string, Shape>> = {
  hello: HELLO,
  ready: { epoch: whole },
  turn: {
    id,
    input,
    busy: optional(text),
    waitMs: optional(whole),
    onDisconnect: optional(oneOf('continue', 'cancel')),
  },
  cancel: { id, turn: text },
  answer: { id, ask: text, answer: anything },
  close: { id },
  ack: { received: whole },
  ping: {},
  pong: {},
  bye: {},
}

/** The frames of one message: one, or an array of them. */
export function readClientMessage(message: string): readonly ClientFrame[] {
  const value = parse(message)
  const frames = Array.isArray(value) ? value : [value]
  if (frames.length === 0) throw malformed('a message must hold a frame')
  return frames.map(readFrame)
}

/** The first message of a connection. */
export function readHello(message: string): Hello {
  const [frame, ...rest] = readClientMessage(message)
  if (frame?.type !== 'hello' || rest.length > 0) throw malformed('the first frame must be hello')
  return frame
}

function readFrame(value: unknown): ClientFrame {
  if (!isRecord(value) || typeof value['type'] !== 'string') {
    throw malformed('a frame must be an object with a type')
  }
  const { type, ...fields } = value
  const shape = Object.hasOwn(SHAPES, type) ? SHAPES[type] : undefined
  if (shape === undefined) throw malformed('a frame has an unknown type')
  const field = misfit(fields, shape)
  if (field !== null) throw malformed(`${type}: the field ${field} is wrong or unknown`)
  return value as ClientFrame
}

/** The first field that is wrong, missing or unknown, or null. */
function misfit(fields: Readonly<Record<string, unknown>>, shape: Shape): string | null {
  for (const [field, check] of Object.entries(shape)) if (!check(fields[field])) return field
  return (
    Object.keys(fields)
      .find((field) => !Object.hasOwn(shape, field))
      ?.slice(0, 64) ?? null
  )
}

/** Level by level: recursion is what deep nesting would break, here and wherever it is written. */
function nestsTooDeep(value: unknown): boolean {
  let level: unknown[] = [value]
  for (let depth = 0; depth <= NESTING_MAX; depth += 1) {
    level = level.flatMap((one) => (isObject(one) ? Object.values(one) : [])).filter(isObject)
    if (level.length === 0) return false
  }
  return true
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}

function parse(message: string): unknown {
  try {
    return JSON.parse(message)
  } catch {
    throw malformed('a message must be JSON')
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function malformed(problem: string): HoldfastError {
  return new HoldfastError('bad_request', problem)
}
