/**
 * The methods that clients may call: what each takes, and what it does with the caller's Holdfast.
 * Every other method of the SDK is refused as unknown. `docs/reference/copilot.md` has this table.
 */
import { randomUUID } from 'node:crypto'
import {
  asHoldfastError,
  HoldfastError,
  type Holdfast,
  type Session,
  type SessionHandle,
  type SettingsChange,
} from '../../core/index.ts'
import { anything, contract } from '../../schema/contract.ts'
import { Type, type Static, type TSchema } from '../../schema/typebox.ts'
import { VERSION } from '../../wire/version.ts'
import { abortRunning, type AttachedSession, type Sent } from './attached-session.ts'
import {
  assertHonourable,
  assertTools,
  CreateParams,
  readModel,
  readSettings,
  ResumeParams,
} from './creation.ts'
import { readHistory } from './history.ts'
import type { CopilotLimits } from './limits.ts'
import { PROTOCOL_VERSION } from './messages.ts'
import type { RpcErrorBody } from '../json-rpc.ts'
import { modelsOf } from './models.ts'
import { readInput, SendParams } from './sending.ts'
import {
  eraseSession,
  findSession,
  listSessions,
  metadataOf,
  nameOf,
  type NamedSession,
} from './sessions.ts'

/** What a method needs of the connection that it came by. */
export interface MethodCaller {
  readonly holdfast: Holdfast
  readonly limits: CopilotLimits
  /** Attached by this name; throws if it is not. */
  attached(name: string): AttachedSession
  /** Null: it is not attached by this name. */
  attachedOrNull(name: string): AttachedSession | null
  attach(
    named: NamedSession,
    params: Static<typeof CreateParams>,
    state: Session | null,
  ): Promise<void>
  /** Nothing happens if it is not attached by this name. */
  detach(name: string): Promise<void>
}

/** Answers a request that is not answered when its method returns. */
export type Respond = (
  outcome: { readonly result: unknown } | { readonly error: RpcErrorBody },
) => void

/** Returned by a method that answers by itself. */
export const ANSWERED_LATER = Symbol('answered later')

type MethodDefinition<Params extends TSchema> = {
  readonly summary: string
  readonly params: Params
  readonly run: (caller: MethodCaller, params: Static<Params>, respond: Respond) => unknown
}

export type Method = {
  readonly summary: string
  readonly params: TSchema
  readonly read: (params: unknown) => object
  readonly run: (caller: MethodCaller, params: object, respond: Respond) => unknown
  /** Its `sessionId` says whose node answers it. */
  readonly isOfSession: boolean
}

function method<Params extends TSchema>({
  params,
  run,
  summary,
}: MethodDefinition<Params>): Omit<Method, 'isOfSession'> {
  const read = contract(params)
  return { summary, params, read: read as Method['read'], run }
}

/** A method that any node can answer. */
function ofServer<Params extends TSchema>(given: MethodDefinition<Params>): Method {
  return { ...method(given), isOfSession: false }
}

/** A method about a session, which its owner answers. */
function ofSession<Params extends TSchema>(given: MethodDefinition<Params>): Method {
  return { ...method(given), isOfSession: true }
}

const NONE = Type.Object({})
const sessionId = Type.String({ minLength: 1 })
const OF_SESSION = Type.Object({ sessionId })
const requestId = Type.String({ minLength: 1 })
const text = Type.Optional(Type.String())

export const METHODS: Readonly<Record<string, Method>> = {
  ping: ofServer({
    summary: 'says that the server is there',
    params: Type.Object({ message: text }),
    run: ({ holdfast }, { message = 'pong' }) => {
      const timestamp = new Date(holdfast.authority.clock.now()).toISOString()
      return { message, timestamp, protocolVersion: PROTOCOL_VERSION }
    },
  }),
  'status.get': ofServer({
    summary: 'the version of Holdfast, and of the protocol',
    params: NONE,
    run: () => ({ version: VERSION, protocolVersion: PROTOCOL_VERSION }),
  }),
  'auth.getStatus': ofServer({
    summary: 'the token is good',
    params: NONE,
    run: () => ({ isAuthenticated: true, authType: 'token', statusMessage: 'a token of Holdfast' }),
  }),
  'models.list': ofServer({
    summary: 'the agents that the caller may use, and the models of each',
    params: NONE,
    run: ({ holdfast }) => ({ models: modelsOf(holdfast) }),
  }),
  'session.create': ofSession({
    summary: 'finds the open session of a name, or creates it, and attaches to it',
    params: CreateParams,
    run: create,
  }),
  'session.resume': ofSession({
    summary: 'attaches to an open session; tells the requests that wait in it',
    params: ResumeParams,
    run: resume,
  }),
  'session.send': ofSession({
    summary: 'submits a message: a turn of the session, recorded in its queue',
    params: SendParams,
    run: send,
  }),
  'session.abort': ofSession({
    summary: 'cancels the turn that runs',
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      await abortRunning(await sessionOf(caller, name))
      return { success: true }
    },
  }),
  'session.detach': ofSession({
    summary: 'leaves the session, which stays open',
    params: OF_SESSION,
    run: leave,
  }),
  'session.destroy': ofSession({
    summary: 'the same, as older SDKs call it',
    params: OF_SESSION,
    run: leave,
  }),
  'session.delete': ofSession({
    summary: 'closes the session and erases its log; its name is free again',
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      await eraseSession(caller.holdfast, name)
      return { success: true }
    },
  }),
  'session.list': ofServer({
    summary: 'the open sessions that the caller may see, the newest first',
    params: Type.Object({ filter: Type.Optional(Type.Record(Type.String(), anything())) }),
    run: async ({ holdfast, limits }, { filter = {} }) => {
      if (Object.values(filter).some((value) => value !== null)) {
        throw new HoldfastError(
          'invalid_field',
          'filter cannot be honoured: sessions have no context',
        )
      }
      const rows = await listSessions(holdfast, limits.listMax)
      return { sessions: rows.map((row) => metadataOf(holdfast, row)) }
    },
  }),
  'session.getLastId': ofServer({
    summary: 'of them, the one that was used last',
    params: NONE,
    run: async ({ holdfast, limits }) => {
      const rows = await listSessions(holdfast, limits.listMax)
      const [last] = rows.toSorted((one, other) => other.updatedAt - one.updatedAt)
      return last === undefined ? {} : { sessionId: nameOf(holdfast, last) }
    },
  }),
  'session.getMetadata': ofSession({
    summary: 'one of them; nothing if there is none of this name',
    params: OF_SESSION,
    run: getMetadata,
  }),
  'session.getMessages': ofSession({
    summary: "the session's history, from its log",
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      const session = await sessionOf(caller, name)
      return { events: await readHistory({ name, session }, caller.limits) }
    },
  }),
  'session.permissions.handlePendingPermissionRequest': ofSession({
    summary: 'answers an ask of the kind `permission`; `success` is false if it was settled before',
    params: Type.Object({
      sessionId,
      requestId,
      result: Type.Object({ kind: Type.String({ minLength: 1 }), feedback: text }),
    }),
    run: async (caller, { sessionId: name, requestId: ask, result }) => {
      return { success: await caller.attached(name).answerPermission(ask, result) }
    },
  }),
  'session.ui.handlePendingUserInput': ofSession({
    summary: 'answers an ask of the kind `question` or `choice`',
    params: Type.Object({
      sessionId,
      requestId,
      response: Type.Object({ answer: Type.String() }),
    }),
    run: async (caller, { sessionId: name, requestId: ask, response }) => {
      return { success: await caller.attached(name).answerQuestion(ask, response.answer) }
    },
  }),
  'session.tools.handlePendingToolCall': ofSession({
    summary: 'returns what a tool of the client has said',
    params: Type.Object({
      sessionId,
      requestId,
      result: Type.Optional(anything()),
      error: text,
    }),
    run: async (caller, { sessionId: name, requestId: ask, result = null, error }) => {
      const outcome = error === undefined ? { result } : { error }
      return { success: await caller.attached(name).answerTool(ask, outcome) }
    },
  }),
  'session.model.getCurrent': ofSession({
    summary: 'the setting `model`, or the agent',
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      const { agent, settings } = await (await sessionOf(caller, name)).state()
      return { modelId: settings.model === undefined ? agent : `${agent}/${settings.model}` }
    },
  }),
  'session.model.switchTo': ofSession({
    summary: 'changes the setting `model`',
    params: Type.Object({ sessionId, modelId: Type.String({ minLength: 1 }) }),
    run: switchModel,
  }),
  'session.mode.get': ofSession({
    summary: 'the setting `mode`; `interactive` if there is none',
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      const { settings } = await (await sessionOf(caller, name)).state()
      return settings.mode ?? 'interactive'
    },
  }),
  'session.mode.set': ofSession({
    summary: 'changes the setting `mode`; `interactive` takes it back',
    params: Type.Object({ sessionId, mode: Type.String({ minLength: 1 }) }),
    run: async (caller, { sessionId: name, mode }) => {
      const session = await sessionOf(caller, name)
      await session.configure({ mode: mode === 'interactive' ? null : mode })
      return null
    },
  }),
  'session.metadata.isProcessing': ofSession({
    summary: 'whether a turn runs or waits',
    params: OF_SESSION,
    run: async (caller, { sessionId: name }) => {
      const { running, queued } = await (await sessionOf(caller, name)).state()
      return { processing: running !== null || queued.length > 0 }
    },
  }),
  'session.eventLog.registerInterest': ofSession({
    summary: 'nothing: each client is told all events that there are',
    params: Type.Object({ sessionId, eventType: Type.String() }),
    run: (caller, { sessionId: name, eventType }) => {
      caller.attached(name)
      return { handle: eventType }
    },
  }),
  'session.eventLog.releaseInterest': ofSession({
    summary: 'nothing',
    params: Type.Object({ sessionId, handle: Type.String() }),
    run: () => ({ success: true }),
  }),
}

/** The first request of a connection. */
export const ATTACHING: ReadonlySet<string> = new Set(['session.create', 'session.resume'])
export const LEAVING: ReadonlySet<string> = new Set([
  'session.detach',
  'session.destroy',
  'session.delete',
])
/** What a server that is about to stop does not begin any more. */
export const STARTING: ReadonlySet<string> = new Set([...ATTACHING, 'session.send'])

export const CONNECT = 'connect'
export const readConnect = contract(
  Type.Object({ token: Type.Optional(Type.String({ maxLength: 16_384 })) }),
)

async function sessionOf(caller: MethodCaller, name: string): Promise<SessionHandle> {
  return caller.attachedOrNull(name)?.session ?? (await findSession(caller.holdfast, name))
}

async function create(caller: MethodCaller, params: Static<typeof CreateParams>) {
  const { holdfast, limits } = caller
  const { sessionId: name = randomUUID() } = params
  assertHonourable(params)
  const { agent, model } = readModel(holdfast, params)
  const settings = readSettings(params, model)
  const known = await findSession(holdfast, name).catch(nullIfUnknown)
  const session = known ?? (await holdfast.resolve({ key: name, agent, settings }))
  const state = session.isNew ? null : await session.state()
  if (state !== null && agent !== undefined && agent !== state.agent) {
    const message = `session ${name} belongs to agent ${state.agent}`
    throw new HoldfastError('agent_mismatch', message, { agent: state.agent })
  }
  assertTools(holdfast, state?.agent ?? agent ?? defaultAgent(holdfast), params, limits.toolsMax)
  await caller.attach({ name, session }, params, state)
  return { sessionId: name, capabilities: { ui: { elicitation: false } } }
}

function nullIfUnknown(thrown: unknown): null {
  const error = asHoldfastError(thrown)
  if (error.code === 'session_unknown') return null
  throw error
}

function defaultAgent(holdfast: Holdfast): string {
  return holdfast.describeAgents().find(({ isDefault }) => isDefault)?.name ?? ''
}

async function resume(caller: MethodCaller, params: Static<typeof ResumeParams>) {
  const { holdfast, limits } = caller
  const { sessionId: name } = params
  assertHonourable(params)
  const session = await findSession(holdfast, name)
  const { agent } = await session.state()
  const { agent: wanted = agent, model } = readModel(holdfast, params)
  if (wanted !== agent) {
    const message = `session ${name} belongs to agent ${agent}`
    throw new HoldfastError('agent_mismatch', message, { agent })
  }
  assertTools(holdfast, agent, params, limits.toolsMax)
  const settings = readSettings(params, model)
  if (Object.keys(settings).length > 0) await session.configure(settings)
  await caller.attach({ name, session }, params, await session.state())
  return { sessionId: name, capabilities: { ui: { elicitation: false } } }
}

async function send(caller: MethodCaller, params: Static<typeof SendParams>, respond: Respond) {
  const attached = caller.attached(params.sessionId)
  const sent: Sent = readInput(params)
  await attached.send(sent, (messageId, failure) => {
    if (failure === null) return respond({ result: { messageId } })
    const { code, message } = failure
    respond({ error: { code: -32_000, message, data: { code, messageId, retry: false } } })
  })
  return ANSWERED_LATER
}

async function leave(caller: MethodCaller, { sessionId: name }: Static<typeof OF_SESSION>) {
  await caller.detach(name)
  return { success: true }
}

async function getMetadata(caller: MethodCaller, { sessionId: name }: Static<typeof OF_SESSION>) {
  const { holdfast } = caller
  try {
    const session = await findSession(holdfast, name)
    const { row } = await session.read(0, 0)
    return row === null ? {} : { session: metadataOf(holdfast, row) }
  } catch (thrown) {
    const { code } = asHoldfastError(thrown)
    if (code === 'session_unknown' || code === 'session_closed') return {}
    throw thrown
  }
}

async function switchModel(
  caller: MethodCaller,
  { sessionId: name, modelId }: { readonly sessionId: string; readonly modelId: string },
) {
  const session = await sessionOf(caller, name)
  const { agent } = await session.state()
  const { agent: wanted = agent, model } = readModel(caller.holdfast, { model: modelId })
  if (wanted !== agent) {
    const message = `session ${name} belongs to agent ${agent}`
    throw new HoldfastError('agent_mismatch', message, { agent })
  }
  const change: SettingsChange = { model: model ?? null }
  await session.configure(change)
  return { modelId }
}
