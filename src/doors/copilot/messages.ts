/** How a refusal is told to a client of the Copilot SDK. */
import type { HoldfastError } from '../../core/index.ts'
import { problemOf } from '../../wire/problem.ts'
import { INVALID_PARAMS, type RpcErrorBody } from '../json-rpc.ts'

export const PROTOCOL_VERSION = 3

/** Of Holdfast: `data.code` says which. */
const REFUSED = -32_000

/** The refusal of a request: the code and its facts in `data`. */
export function rpcErrorOf(error: HoldfastError): RpcErrorBody {
  const { status: _status, type: _type, title: _title, detail, ...facts } = problemOf(error)
  const { code, retry } = error
  const number = code === 'invalid_field' ? INVALID_PARAMS : REFUSED
  return { code: number, message: detail, data: { ...facts, code, retry } }
}
