/** What the options of runners have in common; those of programs share fields. */
import { Type, type TProperties } from '../schema/typebox.ts'
import { list, optional, UNKNOWN_NAME } from '../schema/contract.ts'

/** The longest time that a timer takes, about 25 days. */
const MILLISECONDS_MAX = 2_147_483_647

export function milliseconds(description: string, byDefault?: number) {
  return count(description, byDefault, { maximum: MILLISECONDS_MAX })
}

export function count(description: string, byDefault?: number, bounds: { maximum?: number } = {}) {
  const stated = byDefault === undefined ? {} : { default: byDefault }
  return Type.Integer({ minimum: 1, ...bounds, ...stated, description })
}

/** The options with the defaults that their schema states. */
export function withDefaults<Options extends object>(
  { properties }: { readonly properties: TProperties },
  options: Options,
): Options {
  const defaults = Object.entries(properties).map(([name, field]) => [name, field.default])
  const stated = [...defaults, ...Object.entries(options)].filter(
    ([, value]) => value !== undefined,
  )
  return Object.fromEntries(stated) as Options
}

export const PROGRAM = {
  command: Type.String({ minLength: 1, description: 'the program: a name on PATH, or a path' }),
  ...optional({
    args: list({ default: [], description: 'its arguments' }),
    env: Type.Record(Type.String({ pattern: '^[^=\\u0000]+$' }), Type.String(), {
      additionalProperties: false,
      [UNKNOWN_NAME]: 'is no name of a variable',
      default: {},
      description: 'variables to set',
    }),
    envAllow: list({
      default: [],
      description:
        'variables of the server to pass, besides `PATH`, `HOME` and similar ones; `NAME_*` for ' +
        'many',
    }),
    cwd: Type.String({
      minLength: 1,
      description: 'the working folder; without it every session has its own, `DATA/agents/…`',
    }),
  }),
}
