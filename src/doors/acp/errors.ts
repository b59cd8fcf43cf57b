/** How a refusal is told to an ACP client: an error of the core has its code in `data`. */
import { asHoldfastError, type HoldfastError } from '../../core/index.ts'
import { httpStatus } from '../../wire/error-table.ts'
import { refusalOf } from '../../wire/problem.ts'
import { INTERNAL, INVALID_PARAMS, RpcError, type RpcErrorBody } from '../json-rpc.ts'

const CANCELLED = -32_800
const AUTH_REQUIRED = -32_000
const NOT_FOUND = -32_002
/** A refusal that ACP has no number for: the code in `data` says which. */
export const REFUSED = -32_010

/** An error as a response has it. */
export function errorBody(thrown: unknown): RpcErrorBody {
  if (thrown instanceof RpcError) return thrown.body
  const error = asHoldfastError(thrown)
  const { code, retry, details } = error
  const message = refusalOf(error).reason
  return { code: numberOf(error), message, data: { ...details, code, retry } }
}

const NUMBERS: Readonly<Record<number, number>> = {
  ...{ 400: INVALID_PARAMS, 413: INVALID_PARAMS, 422: INVALID_PARAMS },
  ...{ 401: AUTH_REQUIRED, 404: NOT_FOUND, 410: NOT_FOUND, 500: INTERNAL },
}

function numberOf(error: HoldfastError): number {
  if (error.code === 'cancelled') return CANCELLED
  return NUMBERS[httpStatus(error)] ?? REFUSED
}
