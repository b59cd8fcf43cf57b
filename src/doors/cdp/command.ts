/**
 * Reads a client's messages, which are not trusted: each is checked as Chrome checks it, and
 * written so that the browser cannot read another command in it.
 *
 * A scan proves that a message is JSON without parsing it; its `params` are copied as bytes unless
 * a rule reads them. Params that a rule has read are serialised again, so that the browser gets the
 * values that were checked, even if a name in them was escaped or repeated.
 */
import type { MessageParts } from '../../browsers/index.ts'
import type { CdpLimits } from './limits.ts'
import { CDP_ERRORS, type CdpError, type Params } from './protocol.ts'
import { DEPTH_MAX, scan, type Scanned, type Unfit } from './scan.ts'

export type CdpCommand = {
  readonly id: number
  readonly method: string
  readonly params: Params | undefined
  readonly sessionId: string | undefined
  /** The bytes of its params, until they are parsed. */
  readonly raw: Buffer | null
  /** It has too many values to be parsed here: reading its params throws a RangeError. */
  readonly isVast: boolean
}

class UnreadCommand implements CdpCommand {
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
    if (this.isVast) throw new RangeError('the command has too many values')
    const raw = this.#raw
    this.#raw = null
    if (raw !== null) this.#params = JSON.parse(raw.toString()) as Params
    return this.#params
  }
}

/** A message that is no command; with its id and session, if these could be read. */
export type MalformedCommand = {
  readonly id?: number
  readonly sessionId?: string | undefined
  readonly error: CdpError
}

const KEYS: ReadonlySet<string> = new Set(['id', 'method', 'params', 'sessionId'])

function malformed(message: string, id?: number): MalformedCommand {
  const error = { code: -32600, message }
  return id === undefined ? { error } : { id, error }
}

export type CommandLimits = Pick<CdpLimits, 'valuesMax' | 'readValuesMax' | 'oddBytesMax'>

export function readCommand(data: Buffer, limits: CommandLimits): CdpCommand | MalformedCommand {
  const scanned = scan(data)
  if (scanned === null) return parsed(data, limits)
  const { id, sessionId, unfit, values } = scanned
  if (unfit !== null) return { id, sessionId, error: faultOf(unfit) }
  if (values > limits.valuesMax) return { id, sessionId, error: CDP_ERRORS.values }
  return new UnreadCommand(scanned, values > limits.readValuesMax)
}

/** As Chromium words it, but with the id, so that the client knows which command it is. */
function faultOf(unfit: Unfit): CdpError {
  return { code: CDP_ERRORS.parse.code, message: `JSON: ${unfit}` }
}

/** Parses what the scan does not accept, and answers every error as Chrome does. */
function parsed(data: Buffer, { oddBytesMax }: CommandLimits): CdpCommand | MalformedCommand {
  // Parsed, a value of one byte may take fifty.
  if (data.length > oddBytesMax) return { error: CDP_ERRORS.odd }
  let value: unknown
  try {
    // ws has checked that it is UTF-8.
    value = JSON.parse(data.toString())
  } catch {
    // Like Chrome, without the position of the error.
    return { error: CDP_ERRORS.parse }
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return malformed('Message must be an object')
  }
  return check(value as Readonly<Record<string, unknown>>)
}

function check(value: Readonly<Record<string, unknown>>): CdpCommand | MalformedCommand {
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

export function isMalformed(read: CdpCommand | MalformedCommand): read is MalformedCommand {
  return 'error' in read
}

/** Params up to this size are sent as one text with the rest, which is faster than three parts. */
const TEXT_BYTES_MAX = 4_096

/** The command with another id and session; '' is the connection itself. */
export function rewritten(command: CdpCommand, id: number, session: string): MessageParts {
  const { method, raw } = command
  if (raw === null) return [written(id, method, command.params, session)]
  const head = `{"id":${id},"method":${JSON.stringify(method)}${suffix(session)},"params":`
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
