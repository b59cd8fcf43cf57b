/** The quotas of one principal as a schema. */
import { LIMIT_MAX } from '../core/limits.ts'
import { QUOTAS } from '../core/quotas.ts'
import { EXACT, optional, PROBLEM, UNKNOWN_NAME } from './contract.ts'
import { Type, type TSchema } from './typebox.ts'

const quotas = Object.entries(QUOTAS).map(([name, description]) => {
  const words = { [PROBLEM]: 'must be a whole number, 0 or more' }
  return [name, Type.Integer({ minimum: 0, maximum: LIMIT_MAX, description, ...words })]
})

/** The fields of the quotas of one principal. */
export const QUOTA_FIELDS = Type.Object(
  optional(Object.fromEntries(quotas) as Record<string, TSchema>),
  { ...EXACT, [UNKNOWN_NAME]: 'is no quota' },
)
