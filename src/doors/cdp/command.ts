/**
 * What a client sends, read with distrust: checked as Chrome checks it, and passed on so that no
 * byte of it can be taken for something else.
 *
 * A message is only looked through, which proves it to be JSON; its `params` are cut out and pasted
 * as they are, unless somebody looks at them. What was looked at is written anew: the browser gets
 * what was judged, and nothing else, however a name in it was spelled and how often it came.
 */
import type { CdpLimits } from './limits.ts'
import { DEPTH_MAX, scan, type Scanned, type Unfit } from './scan.ts'

export type Params = Readonly<Record<string, unknown>>

export type Command = {
  readonly id: number
  readonly method: string
  readonly params: Params | undefined
  readonly sessionId: string | undefined
  /** The bytes of its params, as long as nobody has looked at them. */
  readonly raw: Buffer | null
  /** It says more than anybody here looks at: asking for its params throws a RangeError. */
  readonly isVast: boolean
}

class UnreadCommand implements Command {
  readonly id: number
  readonly method: string
  readonly sessionId: string | undefined
  readonly isVast: boolean
  #raw: Buffer | null
  #params: Params | undefined

  constructor({ id, method, sessionId, params }: Scanned, isVast: boolean) {
    this.isVast = isVast
    this.id = id
    this.method = method
    this.sessionId = sessionId
    this.#raw = params
  }

  get raw(): Buffer | null {
    return this.#raw
  }

  get params(): Params | undefined {
    if (this.isVast) throw new RangeError('there is too much in it')
    const raw = this.#raw
    this.#raw = null
    if (raw !== null) this.#params = JSON.parse(raw.toString()) as Params
    return this.#params
  }
}

/** Why a message is refused, as the protocol's error. */
export type Fault = { readonly code: number; readonly message: string }

/** A message that is no command; its id and session, if at least these could be read. */
export type Refusal = {
  readonly id?: number
  readonly sessionId?: string | undefined
  readonly error: Fault
}

export const FAULTS = {
  parse: { code: -32700, message: 'JSON: syntax error' },
  values: { code: -32600, message: 'Message has too many values in it' },
  odd: { code: -32600, message: 'Message is malformed, and too large to tell how' },
  session: { code: -32001, message: 'Session with given id not found.' },
  target: { code: -32602, message: 'No target with given id found' },
  context: { code: -32602, message: 'Failed to find browser context with given id' },
} as const

const KEYS: ReadonlySet<string> = new Set(['id', 'method', 'params', 'sessionId'])

function malformed(message: string, id?: number): Refusal {
  const error = { code: -32600, message }
  return id === undefined ? { error } : { id, error }
}

/** What a command may be made of. */
export type CommandLimits = Pick<CdpLimits, 'valuesMax' | 'readValuesMax' | 'oddBytesMax'>

export function readCommand(data: Buffer, limits: CommandLimits): Command | Refusal {
  const scanned = scan(data)
  if (scanned === null) return parsed(data, limits)
  const { id, sessionId, unfit, values } = scanned
  if (unfit !== null) return { id, sessionId, error: faultOf(unfit) }
  if (values > limits.valuesMax) return { id, sessionId, error: FAULTS.values }
  return new UnreadCommand(scanned, values > limits.readValuesMax)
}

/** As Chromium says it, but with the id: who asked learns that it gets no other answer. */
function faultOf(unfit: Unfit): Fault {
  return { code: FAULTS.parse.code, message: `JSON: ${unfit}` }
}

/** What is not plain is taken apart, and every fault gets the answer that Chrome would give. */
function parsed(data: Buffer, { oddBytesMax }: CommandLimits): Command | Refusal {
  // What takes one byte there may take fifty when it is taken apart.
  if (data.length > oddBytesMax) return { error: FAULTS.odd }
  let value: unknown
  try {
    // ws has checked that it is UTF-8.
    value = JSON.parse(data.toString())
  } catch {
    // Chrome does not tell either where it ceased to be JSON.
    return { error: FAULTS.parse }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return malformed('Message must be an object')
  }
  return check(value as Readonly<Record<string, unknown>>)
}

function check(value: Readonly<Record<string, unknown>>): Command | Refusal {
  const { id, method, params, sessionId } = value
  if (typeof id !== 'number' || (id | 0) !== id) {
    return malformed("Message must have integer 'id' property")
  }
  if (typeof method !== 'string') {
    return malformed("Message must have string 'method' property", id)
  }
  if (sessionId !== undefined && typeof sessionId !== 'string') {
    return malformed("Message may have string 'sessionId' property", id)
  }
  if (params !== undefined && !isParams(params)) {
    return malformed("Message may have object 'params' property", id)
  }
  for (const key in value) {
    if (KEYS.has(key)) continue
    return malformed("Message has property other than 'id', 'method', 'sessionId', 'params'", id)
  }
  const unfit = unfitOf(params, 1)
  if (unfit !== null) return { id, sessionId, error: faultOf(unfit) }
  return { id, method, params, sessionId, raw: null, isVast: false }
}

function unfitOf(value: unknown, depth: number): Unfit | null {
  if (depth > DEPTH_MAX) return 'stack limit exceeded'
  if (typeof value === 'number') return Number.isFinite(value) ? null : 'invalid number'
  if (typeof value !== 'object' || value === null) return null
  for (const item of Object.values(value)) {
    const unfit = unfitOf(item, depth + 1)
    if (unfit !== null) return unfit
  }
  return null
}

function isParams(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isRefusal(read: Command | Refusal): read is Refusal {
  return 'error' in read
}

/** Params up to this are passed on as one text with the rest; larger ones in their own bytes. */
const TEXT_BYTES_MAX = 4_096

/** The message under another id and session; '' is the connection itself. */
export function rewritten(
  command: Command,
  id: number,
  session: string,
): readonly (string | Uint8Array)[] {
  const { method, raw } = command
  if (raw === null) return [written(id, method, command.params, session)]
  const head = `{"id":${id},"method":${JSON.stringify(method)}${suffix(session)},"params":`
  // One small text is sent faster than three parts.
  if (raw.length <= TEXT_BYTES_MAX) return [`${head}${raw.toString()}}`]
  return [head, raw, '}']
}

export function written(
  id: number,
  method: string,
  params: Params | undefined,
  session: string,
): string {
  const body = params === undefined ? '' : `,"params":${JSON.stringify(params)}`
  return `{"id":${id},"method":${JSON.stringify(method)}${body}${suffix(session)}}`
}

function suffix(session: string): string {
  return session === '' ? '' : `,"sessionId":"${session}"`
}
