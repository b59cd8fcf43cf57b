/**
 * Request bodies. An unknown field is refused, so that a misspelt one is not silently ignored. The
 * core checks what depends on its limits.
 */
import { Type, type Static, type TSchema } from '../schema/typebox.ts'
import {
  BUSY_POLICIES,
  HoldfastError,
  invalid,
  LIMITS,
  LINK_SCOPES,
  RECONNECT_POLICIES,
  STATE_LIMITS,
  type Input,
  type ResolveOptions,
  type Settings,
} from '../core/index.ts'
import {
  anything,
  contract,
  EXACT,
  input,
  list,
  oneOf,
  optional,
  orNull,
  PROBLEM,
} from '../schema/contract.ts'

const { idCharsMax, keyBytesMax, labelsMax } = STATE_LIMITS

/** The core checks their sizes, and the agent whether it can honour them. Null takes one back. */
export const SETTINGS = optional({
  mode: orNull(Type.String(), { description: 'a mode of the agent, for example `plan`' }),
  model: orNull(Type.String(), { description: 'the model that the agent uses' }),
  instructions: orNull(Type.String(), { description: 'added to the system prompt of the agent' }),
  cwd: orNull(Type.String(), {
    description: 'the working folder, of those that the operator allows',
  }),
  directories: orNull(list(), { description: 'further folders, of those that are allowed' }),
  mcpServers: orNull(list(), { description: 'names of MCP servers that the operator configured' }),
  onNobody: orNull(oneOf(['wait', 'deny']), {
    description: 'what becomes of an ask that no client can answer: it waits, or is denied at once',
  }),
})
const settings = (description: string) =>
  Type.Unsafe<Settings>(Type.Object(SETTINGS, { ...EXACT, description }))
const ID_CHARACTERS = `1 to ${idCharsMax} letters, digits and _ . : ~ -`

/** What a session is created with. */
export const CREATION = optional({
  agent: Type.String({ description: 'the agent that runs its turns; by default the first one' }),
  reconnect: oneOf(RECONNECT_POLICIES, {
    default: 'reopen',
    description: 'what a lost connection means: `none`, `early`, `resume`, `reopen`',
  }),
  exclusive: Type.Boolean({
    default: false,
    description: 'at most one driver at a time; any number of watchers',
  }),
  graceMs: Type.Integer({
    minimum: 0,
    description: 'how long a lost attachment can be resumed; by default as the policy says',
  }),
  ttlMs: orNull(Type.Integer({ minimum: 1 }), {
    default: LIMITS.ttlMs,
    description: 'how long the session may be idle before the server closes it; `null`: no limit',
  }),
  labels: Type.Record(Type.String(), Type.String(), {
    default: {},
    description: `up to ${labelsMax} named texts, for filtering lists`,
  }),
  settings: settings('how the agent is to work: `mode`, `model`, `instructions`, `cwd`, …'),
})
const internal = Type.Optional(
  Type.Boolean({
    default: false,
    description:
      'never listed, and not found by a key; `403 forbidden` with the quota `openSessions`',
  }),
)

export const WORK = {
  input: input<Input>({
    description:
      'a text, or an object with a `text`, [`parts`](#images-and-files) and further fields for ' +
      'the agent',
  }),
  ...optional({
    busy: oneOf(BUSY_POLICIES, {
      default: 'queue',
      description:
        'if another turn runs: `queue`, `reject`, `interrupt` (cancel the running turn when ' +
        'this one is next), `collect` (join the waiting requests), `steer` (a message for the ' +
        'running turn, if its agent takes one; else `queue`)',
    }),
    waitMs: Type.Integer({
      minimum: 0,
      default: LIMITS.waitMs,
      description: 'how long the request waits for its turn to start before the server answers 429',
    }),
    onDisconnect: oneOf(['continue', 'cancel'], {
      default: 'continue',
      description: '`cancel`: cancel the turn if the client disconnects',
    }),
    settings: settings("for this turn only, on top of the session's settings"),
  }),
}

export const SessionRequest = Type.Object(
  {
    ...optional({
      key: Type.String({
        description:
          `your name for the session, at most ${keyBytesMax} bytes; ` +
          'at most one open session has it',
      }),
      id: Type.String({
        pattern: '^[A-Za-z0-9_.:~-]+$',
        maxLength: idCharsMax,
        [PROBLEM]: `must be a text of ${ID_CHARACTERS}`,
        description: `your own id: ${ID_CHARACTERS}; never assigned twice; by default generated`,
      }),
    }),
    ...CREATION,
    internal,
  },
  EXACT,
)

const { agent: _, ...WITHOUT_AGENT } = CREATION

export const ForkRequest = Type.Object(
  {
    ...optional({
      turn: Type.String({
        description: 'at the end of this turn; by default of the last one done',
      }),
      key: Type.String({ description: 'the key of the new session' }),
    }),
    ...WITHOUT_AGENT,
  },
  EXACT,
)
export const AdoptRequest = Type.Object(
  {
    backend: Type.String({ description: "the agent's own id of the conversation" }),
    ...optional({ key: Type.String({ description: 'the key of the session' }) }),
    ...WITHOUT_AGENT,
  },
  EXACT,
)

export const TurnRequest = Type.Object(WORK, EXACT)
export const KeyTurnRequest = Type.Object({ ...CREATION, ...WORK, internal }, EXACT)
export const MoveRequest = Type.Object(
  {
    before: orNull(Type.String(), {
      description: 'the turn that is to follow it; `null`: it is to be the last',
    }),
  },
  EXACT,
)
export const ChangeRequest = Type.Object(
  {
    settings: Type.Object(SETTINGS, { ...EXACT, description: 'those to change; null: take back' }),
  },
  EXACT,
)

export const AnswerRequest = Type.Object(
  { answer: anything({ description: 'what the ask asks for: the id of an option, or any JSON' }) },
  EXACT,
)

export const LinkRequest = Type.Object(
  {
    scopes: list({
      values: LINK_SCOPES,
      minItems: 1,
      description:
        'what its bearer may do: `watch`, `talk` (which includes `watch`), `answer` (beside one ' +
        'of them: an attachment sees the session)',
    }),
    ...optional({
      expiresInMs: Type.Integer({
        minimum: 1,
        description: 'how long it is valid, in milliseconds',
      }),
      expiresAt: orNull(Type.Integer({ minimum: 0 }), {
        default: null,
        description: 'or the time of its end; `null`: never',
      }),
      uses: orNull(Type.Integer({ minimum: 1 }), {
        default: null,
        description:
          'how many clients may attach with it, resuming after a lost connection not counted; ' +
          '`null`: any number',
      }),
    }),
  },
  EXACT,
)

export const ShareRequest = Type.Object(
  {
    with: Type.String({
      minLength: 1,
      description: 'the id of a principal, or `@` and the name of a group',
    }),
    scopes: list({
      values: LINK_SCOPES,
      minItems: 1,
      description: 'what it may do with this session: `watch`, `talk`, `answer`',
    }),
  },
  EXACT,
)

export type TurnBody = Static<typeof TurnRequest>
export type LinkBody = Static<typeof LinkRequest>

export const readSessionBody = reader(SessionRequest)
export const readForkBody = reader(ForkRequest)
export const readAdoptBody = reader(AdoptRequest)
export const readTurnBody = reader(TurnRequest)
export const readMoveBody = reader(MoveRequest)
export const readChangeBody = reader(ChangeRequest)
export const readAnswerBody = reader(AnswerRequest)
export const readShareBody = reader(ShareRequest)
const readKeyTurn = reader(KeyTurnRequest)
const readLink = reader(LinkRequest)

/**
 * A turn, and what its session is created with if it has to be. Its settings are the turn's: those
 * of the session are set when it is created by itself, or changed later.
 */
export function readKeyTurnBody(body: unknown): { turn: TurnBody; session: ResolveOptions } {
  const { input, busy, waitMs, onDisconnect, settings: own, ...session } = readKeyTurn(body)
  return { turn: { input, busy, waitMs, onDisconnect, settings: own }, session }
}

export function readLinkBody(body: unknown): LinkBody {
  const link = readLink(body)
  if (link.expiresInMs === undefined || link.expiresAt === undefined) return link
  throw invalid('expiresInMs', 'and expiresAt exclude each other')
}

export function reader<Schema extends TSchema>(schema: Schema): (body: unknown) => Static<Schema> {
  const read = contract(schema)
  return (body) => read(body, refusal)
}

function refusal(field: string, problem: string): HoldfastError {
  if (field !== '') return invalid(field, problem)
  return new HoldfastError('bad_request', 'the body must be a JSON object')
}
