/** What the options of runners have in common; those of programs share fields. */
import { Type, type TProperties } from '../schema/typebox.ts'
import { EXACT, list, oneOf, optional, UNKNOWN_NAME } from '../schema/contract.ts'

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

const account = (what: string) =>
  Type.Union([Type.Integer({ minimum: 0 }), Type.String({ minLength: 1 })], { description: what })

/** How the program is kept apart from the server and from other sessions. */
const ISOLATION = {
  isolation: oneOf(['bubblewrap'], {
    description:
      'runs it in a sandbox: its own home, working folder, `/tmp` and processes, system folders ' +
      'read-only, and nothing else of the machine',
  }),
  network: Type.Boolean({
    description: 'with `isolation`: whether it uses the network of the machine; by default `true`',
  }),
  readOnly: list({
    description: 'with `isolation`: further files and folders that it may read',
  }),
  wrap: list({
    minItems: 1,
    description:
      'instead of `isolation`: a program of yours and its arguments, which start the command; ' +
      "`{cwd}` is the session's working folder, `{home}` a home of its own",
  }),
  runAs: Type.Object(
    {
      uid: account('the user, by number or name'),
      gid: Type.Optional(account('the group; by default that of the user')),
    },
    {
      ...EXACT,
      description:
        'the user and group that it runs as: `{"uid": …, "gid": …}`, numbers or names; the ' +
        'server must be root',
    },
  ),
}

/** The fields that have no default. */
export type Isolated = keyof typeof ISOLATION

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
    ...ISOLATION,
  }),
}

/** The fields of programs whose children outlive a turn, and ask. */
export const LONG_LIVED = {
  childrenMax: count(
    'the maximum number of children; beyond it the server stops the longest idle one, or ' +
      'refuses with `too_many`',
    64,
  ),
  idleMs: milliseconds(
    'how long the server keeps an idle child that can load its sessions again',
    300_000,
  ),
  startMs: milliseconds('how long it may take to start, and to create or load a session', 60_000),
  // Less than the grace time of a cancelled turn: the child ends before the next turn starts.
  cancelMs: milliseconds(
    "the time between the cancel request and the kill; keep it under the server's 5 s; 0 " +
      "when a node's lease is lost",
    3_000,
  ),
  memoryBytesMax: count(
    'the maximum resident memory of its process group, checked every second during a turn; ' +
      'on Linux only',
    4_294_967_296,
  ),
  askMs: milliseconds(
    "how long a permission request waits for an answer; by default the server's limit",
  ),
  onNobody: oneOf(['wait', 'deny'], {
    description:
      'what happens if no client can answer permissions: `wait` for one, or `deny`; by default ' +
      "as the session's settings say, or `wait`",
  }),
}
