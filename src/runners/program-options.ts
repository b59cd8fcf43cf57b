/** The fields that all agents have which are programs. */
import { Type } from '../schema/typebox.ts'
import { list, optional, UNKNOWN_NAME } from '../schema/contract.ts'

/** The longest time that a timer takes, about 25 days. */
const MILLISECONDS_MAX = 2_147_483_647

export function milliseconds(description: string, byDefault?: number) {
  return Type.Integer({ minimum: 1, maximum: MILLISECONDS_MAX, ...stated(byDefault), description })
}

export function count(description: string, byDefault?: number) {
  return Type.Integer({ minimum: 1, ...stated(byDefault), description })
}

function stated(byDefault: number | undefined) {
  return byDefault === undefined ? {} : { default: byDefault }
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
