/** JSON-RPC 2.0 as the door speaks it: what a message is, and how a refusal is told. */
import { HoldfastError } from '../../core/index.ts'
import { isRecord, nestsTooDeep } from '../../schema/contract.ts'
import { problemOf } from '../../wire/problem.ts'

export const PROTOCOL_VERSION = 3

export type RpcId = string | number

export type RpcRequest = {
  readonly type: 'request'
  readonly id: RpcId
  readonly method: string
  readonly params: unknown
}

export type RpcMessage =
  | RpcRequest
  | { readonly type: 'notification'; readonly method: string; readonly params: unknown }
  | { readonly type: 'response'; readonly id: RpcId | null; readonly result: unknown }

export type RpcError = { readonly code: number; readonly message: string; readonly data?: object }

const CODES = { invalidRequest: -32_600, unknownMethod: -32_601, invalidParams: -32_602 } as const
/** Of Holdfast: `data.code` says which. */
const REFUSED = -32_000

/** How long an id, and the name of a method, may be. */
const NAME_CHARS_MAX = 256

/** Throws if the text is no message: its sender does not speak the protocol. */
export function readMessage(text: string): RpcMessage {
  const message = parsed(text)
  if (!isRecord(message) || message['jsonrpc'] !== '2.0') {
    throw new HoldfastError('bad_request', 'a message is no JSON-RPC 2.0')
  }
  const { id, method, params } = message
  if (method === undefined && (id === null || isId(id)) && isOutcome(message)) {
    // Only the outcome of one request is looked at: a refusal has none.
    return { type: 'response', id, result: message['result'] }
  }
  const isNamed = typeof method === 'string' && method.length <= NAME_CHARS_MAX
  if (!isNamed || nestsTooDeep(params)) {
    throw new HoldfastError('bad_request', 'a message is neither a request nor a response')
  }
  if (id === undefined) return { type: 'notification', method, params }
  if (isId(id)) return { type: 'request', id, method, params }
  throw new HoldfastError('bad_request', 'the id of a request is no number and no short text')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new HoldfastError('bad_request', 'a message is not JSON')
  }
}

function isOutcome(message: Readonly<Record<string, unknown>>): boolean {
  return (message['result'] !== undefined) !== (message['error'] !== undefined)
}

function isId(id: unknown): id is RpcId {
  if (typeof id === 'string') return id.length <= NAME_CHARS_MAX
  return Number.isSafeInteger(id)
}

export function unknownMethod(method: string): RpcError {
  return { code: CODES.unknownMethod, message: `Unhandled method ${method}` }
}

/** The refusal of a request: the code and its facts in `data`. */
export function rpcErrorOf(error: HoldfastError): RpcError {
  const { status: _status, type: _type, title: _title, detail, ...facts } = problemOf(error)
  const { code, retry } = error
  const number = code === 'invalid_field' ? CODES.invalidParams : REFUSED
  return { code: number, message: detail, data: { ...facts, code, retry } }
}
