/** Retention as a schema; `checkRetention` of the core checks what the rules say. */
import { RETENTION_BOUNDS, RETENTION_CONDITIONS, type RetentionRule } from '../core/index.ts'
import { EXACT, limit, list, optional } from './contract.ts'
import { Type, type TSchema } from './typebox.ts'

const conditions = Object.entries(RETENTION_CONDITIONS).map(([name, description]) => {
  return [name, list({ minItems: 1, description })]
})
const bounds = Object.entries(RETENTION_BOUNDS).map(([name, description]) => {
  return [name, limit({ description })]
})

export const RETENTION_RULE_FIELDS = Type.Object(
  {
    name: Type.String({ minLength: 1, description: 'its name, for reports' }),
    ...optional({
      ...(Object.fromEntries(conditions) as Record<string, TSchema>),
      keep: Type.Boolean({ description: 'its sessions are never erased by themselves' }),
      ...(Object.fromEntries(bounds) as Record<string, TSchema>),
    }),
  },
  EXACT,
)

export const RetentionRules = Type.Unsafe<readonly RetentionRule[]>(
  Type.Array(RETENTION_RULE_FIELDS, {
    description: 'the first rule that a closed session matches decides about it',
  }),
)

export const RETENTION_FIELDS = Type.Object(
  optional({
    archive: Type.String({
      minLength: 1,
      description:
        'a folder into which a session goes before it is erased by a rule, or after `retainMs`; ' +
        'relative to this file',
    }),
    compress: Type.Boolean({ default: false, description: 'compress the archive by gzip' }),
    rules: RetentionRules,
  }),
)

export const RetentionSettings = Type.Object(RETENTION_FIELDS.properties, {
  ...EXACT,
  description: 'which closed sessions are kept, and for how long, see [below](#retention)',
})
