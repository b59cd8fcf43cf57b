/**
 * How a client is let in: who it is and what it may do, which session it means, and whether it is
 * new or comes back. Two claimants of one place are told apart by asking the older one for a sign
 * of life. A newer one whose hello may be late has to give one, too.
 */
import {
  HoldfastError,
  WatcherHandle,
  asHoldfastError,
  closedError,
  connectedAs,
  isWatcherId,
  linkPrincipal,
  LOCAL,
  type Attachment,
  type AttachmentHandle,
  type Principal,
  type QueueRow,
  type ResolveOptions,
  type Session,
  type SessionHandle,
} from '../../core/index.ts'
import {
  WIRE_VERSION,
  type Hello,
  type Resume,
  type Role,
  type Welcome,
} from '../../wire/frames.ts'
import { sessionView } from '../../wire/views.ts'
import type { Connection } from './connection.ts'
import type { Hub } from './hub.ts'
import {
  assertMayDo,
  mayDo,
  OPERATIONS,
  withIncluded,
  type Operation,
  type Scope,
} from '../scopes.ts'

/** A client that was let in. */
export type Entry = {
  readonly session: SessionHandle
  readonly attachment: AttachmentHandle
  readonly role: Role
  readonly scopes: readonly Scope[]
  /** The token that it came in by; null for a link, whose end the session tells. */
  readonly token: string | undefined | null
}

/** What a secret is good for, and whose it is. */
type Grant = { readonly scopes: readonly Scope[]; readonly by: Principal }

/** What it is told, and where and how it goes on from there. */
export type Admitted = {
  readonly entry: Entry
  readonly welcome: Welcome
  readonly presence: boolean
}

export async function enter(hub: Hub, connection: Connection, said: Hello): Promise<Admitted> {
  const { hello, use } = asNewcomer(said)
  if (hello.v !== WIRE_VERSION) {
    throw new HoldfastError('version_unsupported', `this server speaks version ${WIRE_VERSION}`)
  }
  if (hub.holdfast.authority.draining) {
    throw new HoldfastError('draining', 'the server is about to stop')
  }
  const granted = await grantOf(hub, hello, use)
  const found = await findSession(hub, hello, granted)
  const place = await takePlace(hub, connection, { hello, session: found, granted, use })
  const session = found.as(place.by)
  const { session: state, queue } = await session.overview()
  const { attachment, role, scopes, token } = place
  const link = assertHeld(state, place, hello)
  // Who else is there, and by which links, is none of a guest's business.
  const presence = hello.presence === true && link === undefined
  const welcome = welcomeOf(hub, { hello, session, state, queue, place, presence })
  const entry = { session, attachment, role, scopes, token }
  return { entry, welcome, presence }
}

/**
 * A watcher that comes back attaches anew: what it shows as its resume token is the link that it
 * came in by, if any, and which use of it.
 */
function asNewcomer(hello: Hello): { readonly hello: Hello; readonly use?: string } {
  const { token, link, resume } = hello.auth ?? {}
  if (resume === undefined || !isWatcherId(resume.attachment)) return { hello }
  const [, before = '', use = ''] = WATCHER_TOKEN.exec(resume.token) ?? []
  const shown = before === '' ? link : before
  const auth = {
    ...(token === undefined ? {} : { token }),
    ...(shown === undefined ? {} : { link: shown }),
  }
  return { hello: { role: 'watcher', ...hello, auth }, use }
}

const WATCHER_TOKEN = /^([^.]*)\.(.*)$/

function resumeToken({ attachment, role }: Place, { auth }: Hello): string | null {
  const { token } = attachment
  return role === 'watcher' ? `${auth?.link ?? ''}.${token ?? ''}` : token
}

/** Returns the link that it came in by. Throws if it lost its place while it was let in. */
function assertHeld(session: Session, { attachment }: Place, hello: Hello): string | undefined {
  if (attachment instanceof WatcherHandle) {
    if (session.closed !== null) throw closedError(session)
    if (attachment.isHere) return hello.auth?.link
    throw new HoldfastError('not_owner', `session ${session.id} was let go: ask again`)
  }
  return connectedAs(session, { attachment: attachment.id, epoch: attachment.epoch }).link
}

/**
 * What the hello's token or link may do; null if it has neither that is good, but a resume token.
 */
async function grantOf(hub: Hub, { auth, session }: Hello, use?: string): Promise<Grant | null> {
  if (auth?.link !== undefined) return linkGrant(hub, session ?? '', auth.link, use)
  const granted = tokenGrant(hub, auth?.token)
  if (granted !== null || auth?.resume !== undefined) return granted
  throw new HoldfastError('unauthorized', 'a token or a link is needed')
}

function tokenGrant({ gate }: Hub, token: string | undefined): Grant | null {
  const scopes = gate.grant(token)
  const by = gate.principalOf(token)
  return scopes === null || by === null ? null : { scopes, by }
}

/** Who shows nothing that is good is not told whether there is, or was, such a session. */
async function linkGrant(hub: Hub, id: string, token: string, use?: string): Promise<Grant> {
  try {
    // Only looked at: whose it is shows by that.
    const link = await hub.holdfast.as(LOCAL).session(id).link(token, use)
    return { scopes: withIncluded(link.scopes), by: linkPrincipal(link.id) }
  } catch (error) {
    const { code } = asHoldfastError(error)
    if (code !== 'session_unknown' && code !== 'session_erased') throw error
    throw new HoldfastError('unauthorized', 'the link is unknown, used up or no longer valid')
  }
}

function assertMay(granted: Grant | null, operation: Operation): void {
  assertMayDo(granted?.scopes ?? [], operation)
}

async function findSession(
  hub: Hub,
  { session, key, auth, options = {} }: Hello,
  granted: Grant | null,
): Promise<SessionHandle> {
  // Who shows nothing but a resume token is known by what that is good for.
  const holdfast = hub.holdfast.as(granted?.by ?? LOCAL)
  if (session === undefined) {
    assertMay(granted, 'session.create')
    return holdfast.resolve({ ...(options as ResolveOptions), key: key ?? '' })
  }
  const handle = holdfast.session(session)
  try {
    await hub.holdfast.authority.open(session)
  } catch (error) {
    throw granted === null ? await whyToHolder(handle, error, auth?.resume) : error
  }
  return handle
}

/** That a session is closed is told to those who were part of it. */
async function whyToHolder(
  session: SessionHandle,
  error: unknown,
  resume: Resume | undefined,
): Promise<unknown> {
  const { code } = asHoldfastError(error)
  // Whether the session's owner lets it in is for the owner to say.
  if (code === 'not_owner') return error
  const closed = code === 'session_closed'
  const mine = closed && resume !== undefined && (await session.wasAttached(resume))
  if (mine) return error
  return new HoldfastError('attachment_unknown', 'there is no such attachment')
}

type Claim = {
  readonly hello: Hello
  readonly session: SessionHandle
  readonly granted: Grant | null
  /** Of a link: what a watcher came in by before. */
  readonly use: string | undefined
}

type Place = Pick<Entry, 'attachment' | 'role' | 'scopes' | 'token'> & {
  readonly by: Principal
  readonly answers: readonly string[]
}

async function takePlace(hub: Hub, connection: Connection, claim: Claim): Promise<Place> {
  const { hello, session, granted } = claim
  const { role = 'driver', answers = [], auth } = hello
  if (auth?.resume !== undefined) return comeBack(hub, connection, claim, auth.resume)
  if (granted === null) throw new HoldfastError('unauthorized', 'a token or a link is needed')
  for (const operation of operationsOf({ role, answers })) assertMay(granted, operation)
  assertNotAhead(hello, await session.state())
  const use = await freeUse(hub, connection, claim)
  const attachment = await attachFresh(hub, connection, session, { hello, role, answers, use })
  const token = auth?.link === undefined ? auth?.token : null
  return { attachment, role, answers, token, ...granted }
}

/**
 * A resume token is a capability of its own: its holder may do what the attachment could, and more
 * only by showing a token that allows it. A link that is shown besides counts for nothing: when it
 * is revoked, those go that were made by it, and this one perhaps was not.
 */
async function comeBack(
  hub: Hub,
  connection: Connection,
  { hello, session }: Claim,
  resume: Resume,
): Promise<Place> {
  const { attachment: id, token } = resume
  const { held, isReplaced } = await session.attachmentOf(id, token)
  const place = placeAgain(held, hello, tokenGrant(hub, hello.auth?.token))
  const { role, answers, by } = place
  assertNotAhead(hello, await session.state())
  const older = hub.connectionOf(id)
  const contested = older !== null && older !== connection && hello.take !== true
  if (!contested || !(await older.isAlive())) {
    connection.assertHere()
    // Either its last welcome was lost, or this hello is late and its client has the newer token.
    if (isReplaced) await connection.assertAlive()
    // A silent connection is a lost one, whether or not that has been noticed: the policy decides.
    if (contested) await giveUp(older)
    const back = session.as(by)
    const { gone: signal } = connection
    const attachment = await back.resume(id, token, { answers, signal })
    return { ...place, attachment }
  }
  const { exclusive } = await session.state()
  if (exclusive && role === 'driver') {
    throw new HoldfastError('in_use', `session ${session.id} is open elsewhere`)
  }
  // A copied tab: it may come in, but as somebody of its own.
  const copy = { hello, role, answers, likewise: held }
  return { ...place, attachment: await attachFresh(hub, connection, session.as(by), copy) }
}

/** As what it comes back: by its token if that allows it, else by the link that it came in by. */
function placeAgain(
  held: Attachment,
  hello: Hello,
  granted: Grant | null,
): Omit<Place, 'attachment'> {
  const { role, link } = held
  const guest = link === undefined ? null : linkPrincipal(link)
  const { answers = held.answers } = hello
  const needed = operationsOf({ role, answers })
  if (guest !== null && !needed.every((operation) => mayDo(granted?.scopes ?? [], operation))) {
    return { role, answers: held.answers, scopes: scopesOf(held), token: null, by: guest }
  }
  // Else a token that was taken away would live on in the attachments made with it.
  if (granted === null) {
    throw new HoldfastError('unauthorized', 'the token that the attachment was made with is needed')
  }
  for (const operation of needed) assertMay(granted, operation)
  const token = hello.auth?.token
  const by = token === undefined && guest !== null ? guest : granted.by
  return { role, answers, scopes: granted.scopes, token, by }
}

/** A use of a link is one watcher's: while that one is there, another needs a use of its own. */
async function freeUse(
  hub: Hub,
  connection: Connection,
  { session, use }: Claim,
): Promise<string | undefined> {
  const watcher = use === undefined ? null : await session.watcherOf(use)
  const older = watcher === null ? null : hub.connectionOf(watcher)
  if (older === null) return use
  if (await older.isAlive()) return undefined
  await connection.assertAlive()
  await giveUp(older)
  return use
}

/** Before it has a place: a refusal must leave nothing behind. */
function assertNotAhead({ after }: Hello, { seq }: Session): void {
  if ((after?.seq ?? 0) > seq) throw new HoldfastError('ahead', `the log ends at ${seq}`)
}

/** What an attachment does: it sees the log in any case. */
function operationsOf({ role, answers }: Pick<Attachment, 'role' | 'answers'>) {
  const operations: Exclude<Operation, 'server.look'>[] = ['session.read']
  if (role === 'driver') operations.push('turn.run')
  if (answers.length > 0) operations.push('ask.answer')
  return operations
}

/** What it takes to be this. */
function scopesOf(held: Attachment): readonly Scope[] {
  return operationsOf(held).map((operation) => OPERATIONS[operation])
}

type Newcomer = {
  readonly hello: Hello
  readonly role: Role
  readonly answers: readonly string[]
  /** The attachment that it has a copy of. */
  readonly likewise?: Attachment
  readonly use?: string | undefined
}

/** Somebody else may have come in meanwhile, and may be gone again. */
const ATTACH_TRIES = 3

async function attachFresh(
  hub: Hub,
  connection: Connection,
  session: SessionHandle,
  newcomer: Newcomer,
  tries = ATTACH_TRIES,
): Promise<AttachmentHandle> {
  try {
    const isTaken = newcomer.hello.take === true && hub.driversOf(session.id).length > 0
    if (isTaken) await connection.assertAlive()
    return await attach(connection, session, newcomer)
  } catch (error) {
    const isInUse = error instanceof HoldfastError && error.code === 'in_use'
    if (!isInUse || newcomer.role === 'watcher' || tries === 1) throw error
    // Perhaps only nobody has noticed yet that the other one is gone.
    // One without a connection is being let in, or was lost meanwhile: soon it is clear which.
    if (hub.driversOf(session.id).length === 0) await connection.waitForSign()
    const drivers = hub.driversOf(session.id)
    const alive = await Promise.all(drivers.map((driver) => driver.isAlive()))
    if (alive.some(Boolean)) throw error
    await connection.assertAlive()
    for (const driver of drivers) await giveUp(driver)
    return attachFresh(hub, connection, session, newcomer, tries - 1)
  }
}

/** The session must know of the loss before somebody else is let in. */
async function giveUp(connection: Connection): Promise<void> {
  connection.supersede()
  await connection.attachment?.lose()
}

/** Whoever drove an exclusive session before loses its attachment with this step, and is told. */
function attach(
  { gone: signal }: Connection,
  session: SessionHandle,
  newcomer: Newcomer,
): Promise<AttachmentHandle> {
  const { hello, role, answers, likewise, use } = newcomer
  const { take = false, auth } = hello
  const link = auth?.link === undefined ? {} : { link: auth.link }
  const copied = likewise === undefined ? {} : { likewise }
  return session.attach({ role, answers, take, resumable: true, use, signal, ...link, ...copied })
}

function welcomeOf(
  hub: Hub,
  parts: {
    readonly hello: Hello
    readonly session: SessionHandle
    readonly state: Session
    readonly queue: readonly QueueRow[]
    readonly place: Place
    readonly presence: boolean
  },
): Welcome {
  const { hello, session, state, queue, place, presence } = parts
  const { attachment, role, scopes, answers } = place
  const { pingMs, deadMs } = hub.limits
  return {
    type: 'welcome',
    v: WIRE_VERSION,
    // Who else is there is told to those who asked for presence, not to each of a thousand.
    session: sessionView(presence ? state : { ...state, attachments: [] }, queue),
    attachment: attachment.id,
    role,
    scopes,
    epoch: attachment.epoch,
    resume: resumeToken(place, hello),
    after: hello.after ?? { seq: 0, delta: 0 },
    isNew: session.isNew,
    asks: state.asks.filter(({ kind }) => answers.includes(kind)),
    pingMs,
    deadMs,
  }
}
