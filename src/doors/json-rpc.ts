/**
 * JSON-RPC 2.0 as ACP and the Copilot SDK use it: one message in each frame, no batches. What a
 * frame that is none is answered with, and how an error of the core is told, each door decides.
 */
import type { ErrorCode } from '../core/index.ts'
import { isRecord, nestsTooDeep } from '../schema/contract.ts'

export type RpcId = string | number | null

export type RpcRequest = { readonly id: RpcId; readonly method: string; readonly params: unknown }
export type RpcNotification = { readonly method: string; readonly params: unknown }
export type RpcResponse = {
  readonly id: RpcId
  readonly result?: unknown
  readonly error?: unknown
}

export type RpcMessage =
  | ({ readonly type: 'request' } & RpcRequest)
  | ({ readonly type: 'notification' } & RpcNotification)
  | ({ readonly type: 'response' } & RpcResponse)

export const PARSE_ERROR = -32_700
export const INVALID_REQUEST = -32_600
export const METHOD_UNKNOWN = -32_601
export const INVALID_PARAMS = -32_602
export const INTERNAL = -32_603

export type RpcErrorBody = {
  readonly code: number
  readonly message: string
  readonly data?: unknown
}

/** A refusal of the protocol itself, or the end of a turn that was none. */
export class RpcError extends Error {
  override readonly name = 'RpcError'
  readonly body: RpcErrorBody
  /** Of the request, if it could be read. */
  readonly id: RpcId

  constructor(code: number, message: string, data?: unknown, id: RpcId = null) {
    super(message)
    this.body = { code, message, ...(data === undefined ? {} : { data }) }
    this.id = id
  }
}

/** Throws an `RpcError` for what is no message. */
export function readRpcMessage(text: string): RpcMessage {
  const value = parse(text)
  if (Array.isArray(value)) throw invalidRequest('a batch is not possible')
  if (!isRecord(value) || value['jsonrpc'] !== '2.0') {
    throw invalidRequest('this is no JSON-RPC 2.0 message')
  }
  const { id, method, params, result, error } = value
  const known = isRpcId(id) ? id : null
  if (nestsTooDeep(params ?? result ?? error)) throw invalidRequest('it nests too deep', known)
  if (method === undefined) {
    if (!isRpcId(id) || (result === undefined) === (error === undefined)) {
      throw invalidRequest('a response has an id, and a result or an error')
    }
    return { type: 'response', id, result, error }
  }
  if (typeof method !== 'string' || method.length > NAME_CHARS_MAX) {
    throw invalidRequest('the method must be a text, and no long one', known)
  }
  if (id === undefined) return { type: 'notification', method, params }
  if (isRpcId(id)) return { type: 'request', id, method, params }
  throw invalidRequest('the id must be a short text, a whole number or null')
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new RpcError(PARSE_ERROR, 'this is no JSON', dataOf('bad_request'))
  }
}

/** How long an id may be, and the name of a method. */
const NAME_CHARS_MAX = 1_024

/** A larger number would be another one in the response. */
function isRpcId(id: unknown): id is RpcId {
  if (typeof id === 'string') return id.length <= NAME_CHARS_MAX
  return id === null || Number.isSafeInteger(id)
}

function invalidRequest(message: string, id: RpcId = null): RpcError {
  return new RpcError(INVALID_REQUEST, message, dataOf('bad_request'), id)
}

export function methodUnknown(method: string): RpcError {
  const message = `there is no method ${method.slice(0, 64)} here`
  return new RpcError(METHOD_UNKNOWN, message, dataOf('route_unknown'))
}

function dataOf(code: ErrorCode): object {
  return { code, retry: false }
}

export function requestText(id: RpcId, method: string, params: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', id, method, params })
}

export function notificationText(method: string, params: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', method, params })
}

export function resultText(id: RpcId, result: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', id, result })
}

export function rpcErrorText(id: RpcId, error: RpcErrorBody): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error })
}
