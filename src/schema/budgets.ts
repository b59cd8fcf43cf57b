/** The budgets of the configuration as a schema. */
import { BUDGETS, ON_EXCEEDED, type Budget } from '../core/budgets.ts'
import { LIMIT_MAX } from '../core/limits.ts'
import { EXACT, oneOf, optional, PROBLEM, UNKNOWN_NAME } from './contract.ts'
import { Type, type TSchema } from './typebox.ts'

const budgets = Object.entries(BUDGETS).map(([name, description]) => {
  const words = { [PROBLEM]: 'must be a number, 0 or more' }
  return [name, Type.Number({ minimum: 0, maximum: LIMIT_MAX, description, ...words })]
})

/** The fields of the budgets of one principal. */
export const BUDGET_FIELDS = Type.Object(
  optional(Object.fromEntries(budgets) as Record<string, TSchema>),
  { ...EXACT, [UNKNOWN_NAME]: 'is no budget' },
)

const PrincipalBudget = Type.Unsafe<Budget>(BUDGET_FIELDS)

export const BudgetSettings = Type.Object(
  optional({
    default: PrincipalBudget,
    principals: Type.Record(Type.String({ pattern: '^(?!__proto__$)' }), PrincipalBudget),
    onExceeded: oneOf(ON_EXCEEDED),
  }),
  {
    ...EXACT,
    description:
      'how much principals may use in a day, see [below](#budgets): `default` for each of them, ' +
      '`principals` by their ids; `onExceeded`: `refuse` new turns (the default), or `end` those ' +
      'that run too',
  },
)
