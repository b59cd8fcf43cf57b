/**
 * Request bodies: JSON that could be anything, read as what the core takes. A field that is not
 * known is refused, so that a misspelt one is not silently ignored. Values are the core's to check.
 */
import {
  HoldfastError,
  invalid,
  type Input,
  type LinkOptions,
  type ResolveOptions,
  type TurnOptions,
} from '../core/index.ts'

/** What is wrong with a value, or null. */
type Check = (value: unknown) => string | null
type Fields = ReadonlyMap<string, Check>

export type TurnBody = Pick<TurnOptions, 'busy' | 'waitMs' | 'onDisconnect'> & {
  readonly input: Input
}

/** When a link ends is told as a time, or as how long from now. */
export type LinkBody = LinkOptions & { readonly expiresInMs?: number }

export type KeyTurnBody = { readonly turn: TurnBody; readonly session: ResolveOptions }

/** How deep what a caller sends may nest: more would overflow the stack of whoever writes it. */
const NESTING_MAX = 64

const text: Check = (value) => (typeof value === 'string' ? null : 'must be a text')
const number: Check = (value) => (typeof value === 'number' ? null : 'must be a number')
const numberOrNull: Check = (value) => (value === null ? null : number(value))
const flag: Check = (value) => (typeof value === 'boolean' ? null : 'must be true or false')
const list: Check = (value) => (Array.isArray(value) ? null : 'must be a list')
const record: Check = (value) => (isRecord(value) ? null : 'must be an object')
const shallow: Check = (value) =>
  nestsTooDeep(value) ? `must not nest deeper than ${NESTING_MAX}` : null

const CREATION_FIELDS: Fields = new Map([
  ['agent', text],
  ['reconnect', text],
  ['exclusive', flag],
  ['graceMs', number],
  ['ttlMs', numberOrNull],
  ['internal', flag],
  ['labels', record],
])
const SESSION_FIELDS: Fields = new Map([['key', text], ['id', text], ...CREATION_FIELDS])
const TURN_FIELDS: Fields = new Map([
  ['input', shallow],
  ['busy', text],
  ['waitMs', number],
  ['onDisconnect', text],
])
const KEY_TURN_FIELDS: Fields = new Map([...TURN_FIELDS, ...CREATION_FIELDS])
const LINK_FIELDS: Fields = new Map([
  ['scopes', list],
  ['expiresInMs', number],
  ['expiresAt', numberOrNull],
  ['uses', numberOrNull],
])
const ANSWER_FIELDS: Fields = new Map([['answer', shallow]])

export function readSessionBody(body: unknown): ResolveOptions {
  return readFields(body, SESSION_FIELDS)
}

export function readTurnBody(body: unknown): TurnBody {
  return readFields(body, TURN_FIELDS) as TurnBody
}

/** A turn, and what its session is created with if it has to be. */
export function readKeyTurnBody(body: unknown): KeyTurnBody {
  const turn: Record<string, unknown> = {}
  const session: Record<string, unknown> = {}
  for (const [field, value] of Object.entries(readFields(body, KEY_TURN_FIELDS))) {
    if (TURN_FIELDS.has(field)) turn[field] = value
    else session[field] = value
  }
  return { turn: turn as TurnBody, session }
}

export function readAnswerBody(body: unknown): unknown {
  const fields = readFields(body, ANSWER_FIELDS)
  if (Object.hasOwn(fields, 'answer')) return fields['answer']
  throw invalid('answer', 'is missing')
}

export function readLinkBody(body: unknown): LinkBody {
  const link = readFields(body, LINK_FIELDS)
  if (link['expiresInMs'] === undefined || link['expiresAt'] === undefined) return link as LinkBody
  throw invalid('expiresInMs', 'and expiresAt exclude each other')
}

function readFields(body: unknown, fields: Fields): Readonly<Record<string, unknown>> {
  if (!isRecord(body)) throw new HoldfastError('bad_request', 'the body must be a JSON object')
  for (const [field, value] of Object.entries(body)) {
    const check = fields.get(field)
    if (check === undefined) {
      throw invalid(field, `is no field here; there are: ${[...fields.keys()].join(', ')}`)
    }
    const problem = check(value)
    if (problem !== null) throw invalid(field, problem)
  }
  return body
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Level by level: recursion is what deep nesting would break. */
export function nestsTooDeep(value: unknown): boolean {
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
