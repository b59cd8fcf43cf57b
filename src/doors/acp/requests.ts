/** What each request of a client does. */
import {
  asHoldfastError,
  HoldfastError,
  mayDo,
  SCOPES,
  type Capabilities,
  type Session,
  type SessionHandle,
  type SessionRow,
  type Settings,
} from '../../core/index.ts'
import { turnSeq } from '../../core/turns.ts'
import { isRecord } from '../../schema/contract.ts'
import { VERSION } from '../../wire/version.ts'
import { AcpAttachment } from './attachment.ts'
import type { RequestContext } from './client-end.ts'
import { offersIn } from './client-requests.ts'
import { serversNotice, unusedServers } from './client-servers.ts'
import { updateCursorAt, readCursor, type UpdateCursor } from './cursor.ts'
import type { RpcId } from '../json-rpc.ts'
import type { ServedMethod } from './methods.ts'
import { configOptions, offered, settingsChange } from './options.ts'
import { assertDrives, placeView, takePlace } from './place.ts'
import { openingOf, type Opening, type OpeningParams, type ParamsOf } from './schemas.ts'

/** The version of ACP that this door speaks. */
export const PROTOCOL_VERSION = 1
/** Of what is under `_meta.holdfast`. */
const META_VERSION = 1
/** The label of sessions that an editor has made: the folder that it works in. */
const FOLDER_LABEL = 'acp.cwd'
const LABEL_CHARS_MAX = 256
const PAGE_SESSIONS = 50
/** That one connection has open. */
const SESSIONS_MAX = 64

export type Context = RequestContext<AcpAttachment>

export type RpcReply = {
  readonly result: object
  /** Once the result is sent. */
  readonly after?: () => void
}

type Handler<Method extends ServedMethod> = (
  context: Context,
  params: ParamsOf<Method>,
  id: RpcId,
) => Promise<RpcReply | object>

export const HANDLERS: { readonly [Method in ServedMethod]: Handler<Method> } = {
  initialize: async (context, params) => {
    const { clientCapabilities, _meta } = params
    const clientId = _meta?.holdfast?.client ?? null
    const elicitation = clientCapabilities?.['elicitation']
    const takesForms = isRecord(elicitation) && isRecord(elicitation['form'])
    const offers = offersIn(clientCapabilities ?? {})
    context.introduce({ clientId, takesForms, offers }, params)
    return initialized(context)
  },
  'session/new': async (context, params) => {
    assertBegins(context)
    const session = await context.holdfast.resolve(resolveOptions(context, params))
    const { replay = context.defaults.replay } = openingOf(params)
    const isReplayed = replay === true && !session.isNew
    return open(context, session, { params, history: isReplayed ? 'after' : 'none' })
  },
  'session/load': (context, params) =>
    open(context, context.holdfast.session(params.sessionId), { params, history: 'before' }),
  'session/resume': (context, params) =>
    open(context, context.holdfast.session(params.sessionId), { params, history: 'none' }),
  'session/list': listSessions,
  'session/prompt': async (context, params, id) => {
    assertBegins(context)
    // At once: what comes next may cancel it.
    const known = context.attachments.get(params.sessionId)
    return (known ?? (await attachmentOf(context, params))).prompt(id, params)
  },
  'session/cancel': async (context, params) => {
    await (await attachmentOf(context, params)).cancel()
    return {}
  },
  'session/close': async (context, params) => {
    ;(await attachmentOf(context, params)).leave()
    return {}
  },
  'session/delete': async ({ holdfast }, { sessionId, _meta }) => {
    const session = holdfast.session(sessionId)
    if (_meta?.holdfast?.keep === true) await session.close('closed_by_client')
    else await session.erase().catch(unlessErased)
    return {}
  },
  'session/set_mode': async (context, { modeId, ...params }) => {
    await configure(context, params, settingsChange('mode', modeId))
    return {}
  },
  'session/set_config_option': async (context, { configId, value, ...params }) => {
    const settings = await configure(context, params, settingsChange(configId, value))
    const { agent } = await context.holdfast.session(params.sessionId).state()
    return {
      configOptions: configOptions({ settings, capabilities: context.capabilitiesOf(agent) }),
    }
  },
  '_holdfast/control': async (context, { role, take = false, ...params }) => {
    const attachment = await attachmentOf(context, params)
    await attachment.control(role, take)
    return { role: attachment.place.role }
  },
}

/** A client that did not hear of it asks again. */
function unlessErased(thrown: unknown): void {
  if (asHoldfastError(thrown).code !== 'session_erased') throw thrown
}

function initialized(context: Context): object {
  const { holdfast, defaults } = context
  const agent = defaults.agent ?? holdfast.defaultAgent
  const { images, files, settings } = context.capabilitiesOf(agent)
  const scopes = holdfast.access?.scopes ?? SCOPES
  const isManager = mayDo(scopes, 'session.close')
  return {
    protocolVersion: PROTOCOL_VERSION,
    agentInfo: { name: 'holdfast', title: 'Holdfast', version: VERSION },
    authMethods: [],
    agentCapabilities: {
      loadSession: true,
      promptCapabilities: { image: images, audio: false, embeddedContext: files },
      mcpCapabilities: { http: false, sse: false },
      sessionCapabilities: {
        ...{ list: {}, resume: {}, close: {} },
        ...(isManager ? { delete: {} } : {}),
        ...(settings.includes('directories') ? { additionalDirectories: {} } : {}),
      },
    },
    _meta: { holdfast: { v: META_VERSION, agents: holdfast.agents, control: true } },
  }
}

function assertBegins({ isDraining }: Context): void {
  if (isDraining()) throw new HoldfastError('draining', 'the server is about to stop')
}

async function attachmentOf(
  { attachments, holdfast }: Context,
  { sessionId }: { readonly sessionId: string },
): Promise<AcpAttachment> {
  const known = attachments.get(sessionId)
  if (known !== undefined) return known
  // Throws as for a session that does not exist if the caller may not see it.
  await holdfast.session(sessionId).state()
  throw new HoldfastError('attachment_unknown', 'the session is not open on this connection')
}

async function configure(
  context: Context,
  params: { readonly sessionId: string },
  change: ReturnType<typeof settingsChange>,
): Promise<Settings> {
  const { place, session } = await attachmentOf(context, params)
  assertDrives(place)
  return session.configure(change)
}

/** How a new session is made. What its agent cannot be told is left out, as the reference says. */
function resolveOptions(context: Context, params: OpeningParams) {
  const { defaults, holdfast } = context
  const { key = defaults.key, agent = defaults.agent, exclusive, settings } = openingOf(params)
  const { cwd, additionalDirectories } = params
  const takes = context.capabilitiesOf(agent ?? holdfast.defaultAgent).settings
  const isLabel = cwd !== undefined && cwd !== '' && cwd.length <= LABEL_CHARS_MAX
  return {
    ...(key === undefined ? {} : { key }),
    ...(agent === undefined ? {} : { agent }),
    ...(exclusive === undefined ? {} : { exclusive }),
    ...(isLabel ? { labels: { [FOLDER_LABEL]: cwd } } : {}),
    settings: { ...placeSettings({ cwd, additionalDirectories }, takes), ...settings },
  }
}

function placeSettings(
  { cwd, additionalDirectories: directories }: OpeningParams,
  takes: Capabilities['settings'],
): Settings {
  const hasMore = directories !== undefined && directories.length > 0
  return {
    ...(cwd !== undefined && takes.includes('cwd') ? { cwd } : {}),
    ...(hasMore && takes.includes('directories') ? { directories } : {}),
  }
}

type OpeningRequest = {
  readonly params: OpeningParams
  /** What was said before is told before the response, after it, or not at all. */
  readonly history: 'before' | 'after' | 'none'
}

/** Attaches to a session, once for each connection. */
async function open(
  context: Context,
  session: SessionHandle,
  { params, history }: OpeningRequest,
): Promise<RpcReply> {
  const opening = openingOf(params)
  const known = context.attachments.get(session.id)
  if (known !== undefined) {
    const again = await openAgain(context, known, { opening, history })
    return told(context, { attachment: known, params }, again)
  }
  const attachment = await attachInRoom(context, session, { opening, history })
  try {
    const state = await session.state()
    if (history !== 'after') await attachment.catchUp(state.seq)
    const commands = history === 'none' && opening.at === undefined ? state.commands : null
    const after = (): void => attachment.begin(history === 'after' ? state.seq : null, commands)
    const reply = { result: opened(context, attachment, state), after }
    return await told(context, { attachment, params }, reply)
  } catch (error) {
    attachment.end('leave')
    throw error
  }
}

/** With what is not done of what the client wants. */
async function told(
  context: Context,
  { attachment, params }: { readonly attachment: AcpAttachment; readonly params: OpeningParams },
  { result, after }: OpenedReply,
): Promise<RpcReply> {
  const { agent, settings } = await attachment.session.state()
  const servers = unusedServers(params, context.capabilitiesOf(agent), settings)
  if (servers.length === 0) return { result, after }
  const { holdfast } = result._meta
  const _meta = { holdfast: { ...holdfast, ignored: { mcpServers: servers } } }
  return {
    result: { ...result, _meta },
    after: () => {
      attachment.notice(serversNotice(servers))
      after()
    },
  }
}

type OpenedReply = { readonly result: ReturnType<typeof opened>; readonly after: () => void }

/** A client may open a session twice, as two threads of an editor do: it is attached once. */
async function openAgain(
  context: Context,
  attachment: AcpAttachment,
  { opening, history }: Attaching,
): Promise<OpenedReply> {
  if (opening.role !== undefined) await attachment.control(opening.role, opening.take ?? false)
  const state = await attachment.session.state()
  startIn(opening, state)
  if (history === 'before') await attachment.retell(state.seq)
  const after = (): void => {
    if (history === 'after') void attachment.retell(state.seq).catch(context.fail)
  }
  return { result: opened(context, attachment, state), after }
}

function opened(context: Context, { place, at, session }: AcpAttachment, state: Session) {
  const { agent, settings } = state
  const capabilities = context.capabilitiesOf(agent)
  const meta = { holdfast: { ...placeView(place, state), at } }
  return { sessionId: session.id, ...offered({ settings, capabilities }), _meta: meta }
}

type Attaching = { readonly opening: Opening; readonly history: OpeningRequest['history'] }

async function attachInRoom(
  context: Context,
  session: SessionHandle,
  attaching: Attaching,
): Promise<AcpAttachment> {
  if (context.attachments.size + context.opening >= SESSIONS_MAX) {
    const message = `a connection has at most ${SESSIONS_MAX} sessions open`
    throw new HoldfastError('too_many', message)
  }
  context.opening += 1
  try {
    return await attach(context, session, attaching)
  } finally {
    context.opening -= 1
  }
}

async function attach(
  context: Context,
  session: SessionHandle,
  { opening, history }: Attaching,
): Promise<AcpAttachment> {
  const { attachments, clientId } = context
  const own = await AcpAttachment.ownTurns(session, clientId)
  const place = await takePlace(session, placeOptions(context, opening))
  try {
    const state = await session.state()
    const from = history === 'none' ? startIn(opening, state) : updateCursorAt(0)
    const attachment = new AcpAttachment(context, session, { place, start: from, own, state })
    // Of two that came together, the later one has it.
    attachments.get(session.id)?.end('leave')
    attachments.set(session.id, attachment)
    // The client was lost while it was let in.
    if (context.isOver) attachment.end('lose')
    return attachment
  } catch (error) {
    await place.attachment.leave()
    throw error
  }
}

function placeOptions({ hub, isReturning, signal, defaults }: Context, opening: Opening) {
  const { role = defaults.role, take, attachment, token } = opening
  return {
    ...{ hub, signal, resumable: isReturning },
    ...(role === undefined ? {} : { role }),
    ...(take === undefined ? {} : { take }),
    ...(attachment === undefined ? {} : { attachment }),
    ...(token === undefined ? {} : { token }),
  }
}

/** Where the client stands; or now, with the message that is being written from its beginning. */
function startIn({ at }: Opening, { seq, running }: Session): UpdateCursor {
  if (at === undefined) {
    return updateCursorAt(seq, running === null ? seq : (turnSeq(running.id) ?? 1) - 1)
  }
  const start = readCursor(at)
  if (start.seq <= seq) return start
  throw new HoldfastError('ahead', `the log ends at ${seq}`)
}

async function listSessions(
  { holdfast, positions }: Context,
  { cwd, cursor }: ParamsOf<'session/list'>,
): Promise<object> {
  const given = cursor ?? null
  const own = given === null ? null : ((await positions?.revealCursor(given)) ?? given)
  const query = {
    state: 'open',
    limit: PAGE_SESSIONS,
    ...(own === null ? {} : { cursor: own }),
  } as const
  const { sessions, nextCursor } = await holdfast.list(query)
  const isListed = ({ labels }: SessionRow): boolean => {
    const folder = labels[FOLDER_LABEL]
    // Browser sessions are no conversations. One that no editor has made is in no folder.
    return labels['door'] !== 'cdp' && (!cwd || folder === undefined || folder === cwd)
  }
  const next =
    nextCursor === null ? null : ((await positions?.hideCursor(nextCursor)) ?? nextCursor)
  return {
    sessions: sessions.filter(isListed).map((row) => sessionInfo(row, cwd ?? '/')),
    ...(next === null ? {} : { nextCursor: next }),
  }
}

function sessionInfo({ id, key, agent, labels, updatedAt, status }: SessionRow, cwd: string) {
  return {
    sessionId: id,
    cwd: labels[FOLDER_LABEL] ?? cwd,
    title: key ?? agent,
    updatedAt: new Date(updatedAt).toISOString(),
    _meta: { holdfast: { key, agent, status } },
  }
}
