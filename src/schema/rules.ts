/** The rules of permissions as a schema; `checkRules` of the core checks what they say. */
import { ANSWERED_BY } from '../core/state.ts'
import { DECISIONS, RULE_CONDITIONS, type Rule } from '../core/rules.ts'
import { EXACT, list, oneOf, optional } from './contract.ts'
import { Type, type TSchema } from './typebox.ts'

const conditions = Object.entries(RULE_CONDITIONS).map(([name, description]) => {
  return [name, list({ minItems: 1, description })]
})

export const RULE_FIELDS = Type.Object(
  {
    name: Type.String({ minLength: 1, description: 'its name, for the log' }),
    decision: oneOf(DECISIONS, { description: 'what is decided where it matches' }),
    ...optional({
      message: Type.String({ description: 'of a rule that denies: words for the agent' }),
      answeredBy: oneOf(ANSWERED_BY, {
        description:
          'of a rule that asks: whose answers are taken: of a client that drives the session ' +
          '(`driver`), of its `owner`, of its owner and those whom it is shared with (`group`), ' +
          'or of `any` who may answer',
      }),
      people: Type.Integer({
        minimum: 1,
        maximum: 8,
        description: 'of a rule that asks: so many different people have to allow it',
      }),
      ...(Object.fromEntries(conditions) as Record<string, TSchema>),
    }),
  },
  EXACT,
)

export const RuleList = Type.Unsafe<readonly Rule[]>(
  Type.Array(RULE_FIELDS, {
    description: 'rules that decide what agents ask before people are asked, see [below](#rules)',
  }),
)
