/**
 * The parameters of ACP's methods, as far as they are read here. What the protocol has besides is
 * let through; what is under `_meta.holdfast` is ours, and a name that is not known is refused.
 */
import { BUSY_POLICIES, HoldfastError, ROLES, type Settings } from '../../core/index.ts'
import {
  anything,
  contract,
  EXACT,
  isRecord,
  list,
  oneOf,
  optional,
} from '../../schema/contract.ts'
import { Type, type Static, type TProperties } from '../../schema/typebox.ts'

const text = Type.String()
const settings = Type.Unsafe<Settings>(Type.Record(text, Type.Unknown()))

/** `_meta`, with our own fields in it. */
function meta<Fields extends TProperties>(fields: Fields) {
  const own = Type.Object(fields, EXACT)
  return optional({ _meta: Type.Object(optional({ holdfast: own })) })
}

/** How a session is opened, as `_meta.holdfast` of the request says. */
export const OpeningMeta = Type.Object(
  optional({
    key: Type.String({ description: 'the key of the session; created if there is none' }),
    agent: Type.String({ description: 'the agent of a new session' }),
    settings: Type.Unsafe<Settings>({
      ...Type.Record(text, Type.Unknown()),
      description: 'settings of a new session, over those that the request has',
    }),
    role: oneOf(ROLES, {
      description: '`driver` takes turns, `watcher` only looks on; by default what the caller may',
    }),
    take: Type.Boolean({ description: 'take an exclusive session over from its driver' }),
    exclusive: Type.Boolean({ description: 'a new session has one driver at a time' }),
    replay: Type.Boolean({
      description: 'after `session/new` with a key, tell what was said before',
    }),
    at: Type.String({
      description: 'of `session/resume`: continue after the update with this position',
    }),
    attachment: Type.String({
      description: 'of `session/resume`: the attachment to continue, and',
    }),
    token: Type.String({ description: 'its token, both as the response before had them' }),
  }),
  EXACT,
)

const OPENING = optional({
  cwd: text,
  additionalDirectories: list(),
  mcpServers: Type.Array(Type.Unknown()),
  _meta: Type.Object(optional({ holdfast: OpeningMeta })),
})
const SESSION = { sessionId: Type.String({ minLength: 1, maxLength: 256 }) }

/** What a connection says of itself. */
const INITIALIZE = {
  protocolVersion: Type.Integer({ minimum: 0 }),
  ...optional({ clientCapabilities: Type.Record(text, Type.Unknown()) }),
  ...meta(optional({ client: Type.String({ pattern: '^[\\w-]{8,64}$' }) })),
}

const PROMPT = {
  ...SESSION,
  prompt: Type.Array(anything(), { minItems: 1 }),
  ...meta(
    optional({
      prompt: Type.String({ minLength: 1, maxLength: 64 }),
      busy: oneOf(BUSY_POLICIES),
      settings,
    }),
  ),
}

const SCHEMAS = {
  initialize: Type.Object(INITIALIZE),
  'session/new': Type.Object(OPENING),
  'session/load': Type.Object({ ...OPENING, ...SESSION }),
  'session/resume': Type.Object({ ...OPENING, ...SESSION }),
  'session/list': Type.Object(optional({ cwd: text, cursor: text })),
  'session/prompt': Type.Object(PROMPT),
  'session/cancel': Type.Object(SESSION),
  'session/close': Type.Object(SESSION),
  'session/delete': Type.Object({ ...SESSION, ...meta(optional({ keep: Type.Boolean() })) }),
  'session/set_mode': Type.Object({ ...SESSION, modeId: text }),
  'session/set_config_option': Type.Object({ ...SESSION, configId: text, value: Type.Unknown() }),
  authenticate: Type.Object({ methodId: text }),
  logout: Type.Object({}),
  '_holdfast/control': Type.Object({
    ...SESSION,
    role: oneOf(ROLES),
    ...optional({ take: Type.Boolean() }),
  }),
}

export type AcpMethod = keyof typeof SCHEMAS
export type ParamsOf<Method extends AcpMethod> = Static<(typeof SCHEMAS)[Method]>
export type OpeningParams = ParamsOf<'session/new'>

const READERS = Object.fromEntries(
  Object.entries(SCHEMAS).map(([method, schema]) => [method, contract(schema)]),
)

export function isAcpMethod(method: string): method is AcpMethod {
  return Object.hasOwn(SCHEMAS, method)
}

/** Throws `invalid_field` with the name of the first wrong field. */
export function readParams<Method extends AcpMethod>(
  method: Method,
  params: unknown,
): ParamsOf<Method> {
  const read = READERS[method]
  if (read === undefined) throw new HoldfastError('route_unknown', `there is no ${method}`)
  return read(withoutNulls(params ?? {}))
}

/** In ACP a field that is null is as good as one that is not there. */
function withoutNulls(params: unknown): unknown {
  if (!isRecord(params)) return params
  return Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null))
}

export type Opening = Static<typeof OpeningMeta>

export function openingOf({ _meta }: OpeningParams): Opening {
  return _meta?.holdfast ?? {}
}
