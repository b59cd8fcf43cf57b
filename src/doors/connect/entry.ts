/**
 * The service at `/v1/connect`: a client follows the log of a session and sends requests. It is let
 * in by what it is and may do, which session it names, and whether it is new or comes back.
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
  type ResolveOptions,
  type Session,
  type SessionHandle,
} from '../../core/index.ts'
import { readHello } from '../../wire/client-frames.ts'
import { WIRE_VERSION, type Hello, type Resume, type Welcome } from '../../wire/frames.ts'
import {
  assertMayDo,
  mayDo,
  OPERATIONS,
  scopesOn,
  sessionUnknown,
  withIncluded,
  type Caller,
  type Operation,
  type Scope,
} from '../../core/access.ts'
import { giveUp, resumeFor, welcomeOf } from './admission.ts'
import type { AdmittedClient, Connection, Service, WelcomedClient } from './connection.ts'
import type { Hub } from './hub.ts'
import { LogChannel } from './log-channel.ts'

export const connectService: Service = { door: 'connect', mark: '', readHello, admit }

/** What a secret is good for, and whose it is. */
type ScopedCaller = Caller & { readonly scopes: readonly Scope[] }

/** A client's attachment, as what it holds it, and by which token. */
type ClientIdentity = Omit<AdmittedClient, 'channel'> & Pick<Attachment, 'answers'>

type HelloClaim = {
  readonly hello: Hello
  readonly session: SessionHandle
  /** Null if it has neither a token nor a link that is good, but a resume token. */
  readonly granted: ScopedCaller | null
  /** Of a link: what a watcher came in by before. */
  readonly use: string | undefined
}

/** A hello, and what the client was given besides its resume token. */
type SplitHello = {
  readonly hello: Hello
  /** The link that its attachment was made with. */
  readonly link?: string | undefined
  readonly use?: string
}

async function admit(connection: Connection, said: Hello): Promise<WelcomedClient> {
  const { hub } = connection
  const split = splitResume(said)
  const { hello, use } = split
  if (hello.v !== WIRE_VERSION) {
    throw new HoldfastError('version_unsupported', `this server speaks version ${WIRE_VERSION}`)
  }
  const preparing = hub.gate.prepare(hello.auth?.token)
  if (preparing !== null) await preparing
  const granted = await grantOf(hub, hello, use)
  // Before its session is created.
  if (granted !== null) connection.countFor(granted, hello)
  const found = await findSession(hub, split, granted)
  const claim = { hello, session: found, granted, use }
  const { answers, ...identity } = await identify(connection, claim).catch(
    async (refusal: unknown) => {
      // If it fails, the session's time to live ends it.
      if (found.isNew) await hub.holdfast.authority.discard(found.id).catch(() => undefined)
      throw refusal
    },
  )
  const overview = await identity.session.overview()
  const link = assertHeld(overview.session, identity.attachment, hello)
  // A client that came by a link does not see other clients and links.
  const presence = hello.presence === true && link === undefined
  const after = hello.after ?? { seq: 0, delta: 0 }
  // Of a session that is shared with it, it may do what that says.
  const { session } = identity
  const scopes = session.access === null ? identity.scopes : scopesOn(session, overview.session)
  const client = { ...identity, scopes }
  const welcome: Welcome = {
    ...welcomeOf(connection, client, overview, { answers, presence }),
    v: WIRE_VERSION,
    resume: resumeToken(client, hello.auth?.link ?? split.link),
    after,
  }
  const channel = new LogChannel(connection, { ...client, after, presence })
  return { client: { ...client, channel }, welcome }
}

/**
 * The resume token of a client that came in by a link begins with that, so that the store can say
 * whether it is good. A watcher that comes back attaches anew: the rest of its token is which use
 * of the link it came in by.
 */
function splitResume(hello: Hello): SplitHello {
  const { token, link, resume } = hello.auth ?? {}
  const [, before = '', rest = ''] = /^([^.]*)\.(.*)$/.exec(resume?.token ?? '') ?? []
  const own = before === '' ? undefined : before
  if (resume === undefined) return { hello }
  if (isWatcherId(resume.attachment)) {
    return { hello: { role: 'watcher', ...hello, auth: { token, link: own ?? link } }, use: rest }
  }
  if (own === undefined) return { hello }
  return {
    hello: { ...hello, auth: { ...hello.auth, resume: { ...resume, token: rest } } },
    link: own,
  }
}

function resumeToken(
  { attachment, role }: Pick<AdmittedClient, 'attachment' | 'role'>,
  link: string | undefined,
): string | null {
  const { token } = attachment
  if (role === 'watcher') return `${link ?? ''}.${token ?? ''}`
  return token === null || link === undefined ? token : `${link}.${token}`
}

/** Returns the link that it came in by. Throws if it lost its place while it was let in. */
function assertHeld(
  session: Session,
  attachment: AttachmentHandle,
  { auth }: Hello,
): string | undefined {
  const { id, epoch } = attachment
  if (!(attachment instanceof WatcherHandle)) {
    return connectedAs(session, { attachment: id, epoch }).link
  }
  if (session.closed !== null) throw closedError(session)
  if (attachment.isHere) return auth?.link
  throw new HoldfastError('not_owner', `session ${session.id} was let go: ask again`)
}

/** What the hello's token or link may do. */
async function grantOf(
  hub: Hub,
  { auth, session }: Hello,
  use?: string,
): Promise<ScopedCaller | null> {
  if (auth?.link !== undefined) return linkGrant(hub, session ?? '', auth.link, use)
  const granted = tokenGrant(hub, auth?.token)
  if (granted !== null || auth?.resume !== undefined) return granted
  throw new HoldfastError('unauthorized', 'a token or a link is needed')
}

function tokenGrant({ gate }: Hub, token: string | undefined): ScopedCaller | null {
  const scopes = gate.grant(token)
  const caller = gate.callerOf(token)
  return scopes === null || caller === null ? null : { scopes, ...caller }
}

/** A caller without a valid secret does not learn whether there is, or was, such a session. */
async function linkGrant(hub: Hub, id: string, token: string, use?: string): Promise<ScopedCaller> {
  try {
    // Only looked at: whose it is shows by that.
    const session = hub.holdfast.as(LOCAL, null).session(id)
    // Before it is loaded, or its owner asked: both take time, and the owner may hang.
    if (!(await session.hasLink(token))) throw sessionUnknown(id)
    const link = await session.link(token, use)
    return guestOf(id, link.id, withIncluded(link.scopes))
  } catch (error) {
    const { code } = asHoldfastError(error)
    if (code !== 'session_unknown' && code !== 'session_erased') throw error
    throw new HoldfastError('unauthorized', 'the link is unknown, used up or no longer valid')
  }
}

/** Sees its session and no other. */
function guestOf(session: string, link: string, scopes: readonly Scope[]): ScopedCaller {
  const access = { principal: '', groups: [], scopes, session }
  return { scopes, by: linkPrincipal(link), access }
}

function assertMay(granted: ScopedCaller | null, ...operations: readonly Operation[]): void {
  for (const operation of operations) assertMayDo(granted?.scopes ?? [], operation)
}

async function findSession(
  hub: Hub,
  { hello, link }: SplitHello,
  granted: ScopedCaller | null,
): Promise<SessionHandle> {
  const { session, key = '', auth, options = {} } = hello
  // A client with a resume token only acts as the attachment's principal, which is read later.
  const holdfast = hub.holdfast.as(granted?.by ?? LOCAL, granted?.access ?? null)
  if (session === undefined) {
    assertMay(granted, 'session.create')
    return holdfast.resolve({ ...(options as ResolveOptions), key })
  }
  const handle = holdfast.session(session)
  try {
    // Throws as for a session that does not exist if the caller may not see it.
    if (granted === null) await assertLinked(handle, link)
    else if (granted.access !== null) await handle.state()
    await hub.holdfast.authority.open(session)
  } catch (error) {
    throw granted === null ? await whyToHolder(handle, error, auth?.resume) : error
  }
  return handle
}

/** A client without a token of its own comes back by the link that it came in by. */
async function assertLinked(session: SessionHandle, link: string | undefined): Promise<void> {
  if (link === undefined) throw new HoldfastError('unauthorized', 'a token or a link is needed')
  if (!(await session.hasLink(link))) throw sessionUnknown(session.id)
}

/** Only a client that was attached learns that the session is closed. */
async function whyToHolder(
  session: SessionHandle,
  error: unknown,
  resume: Resume | undefined,
): Promise<unknown> {
  const { code } = asHoldfastError(error)
  // Whether the session's owner lets it in is for the owner to say.
  if (code === 'not_owner' || code === 'unauthorized') return error
  const isClosed = code === 'session_closed'
  if (isClosed && resume !== undefined && (await session.wasAttached(resume))) return error
  return new HoldfastError('attachment_unknown', 'there is no such attachment')
}

async function identify(connection: Connection, claim: HelloClaim): Promise<ClientIdentity> {
  const { hello, session, granted } = claim
  const { role = 'driver', answers = [], auth } = hello
  if (auth?.resume !== undefined) return comeBack(connection, claim, auth.resume)
  if (granted === null) throw new HoldfastError('unauthorized', 'a token or a link is needed')
  assertMay(granted, ...operationsOf({ role, answers }))
  assertNotAhead(hello, await session.state())
  const use = await freeUse(connection, claim)
  const attachment = await attachFresh(connection, session, { hello, role, answers, use })
  if (auth?.link !== undefined) {
    const { diagnose } = connection.hub.holdfast.authority
    const facts = { session: session.id, link: granted.by.id, address: connection.socket.address }
    diagnose('link_used', 'a client came in by a link', facts)
  }
  const token = auth?.link === undefined ? auth?.token : null
  return { session, attachment, role, answers, token, scopes: granted.scopes }
}

/**
 * A resume token is a capability of its own: its holder may do what the attachment could, and more
 * only by showing a token that allows it. A link that is shown besides counts for nothing: when it
 * is revoked, those go that were made by it, and this one perhaps was not.
 */
async function comeBack(
  connection: Connection,
  { hello, session }: HelloClaim,
  resume: Resume,
): Promise<ClientIdentity> {
  const { held, isReplaced } = await session.attachmentOf(resume.attachment, resume.token)
  const { by, access, ...identity } = identityOf(
    held,
    hello,
    tokenGrant(connection.hub, hello.auth?.token),
  )
  const { role, answers } = identity
  connection.countFor({ access }, hello)
  assertNotAhead(hello, await session.state())
  const own = session.as(by, access)
  const claim = { session: own, resume, take: hello.take, isReplaced, answers }
  // Null: a copied tab. It gets an attachment of its own, unless the session is exclusive.
  const attachment =
    (await resumeFor(connection, claim)) ??
    (await attachFresh(connection, own, { hello, role, answers, likewise: held }))
  return { ...identity, session: own, attachment }
}

/** As what it comes back: by its token if that allows it, else by the link that it came in by. */
function identityOf(
  held: Attachment,
  hello: Hello,
  granted: ScopedCaller | null,
): Omit<ClientIdentity, 'session' | 'attachment'> & Caller {
  const { role, link } = held
  const guestScopes = operationsOf(held).map((operation) => OPERATIONS[operation])
  const guest = link === undefined ? null : guestOf(hello.session ?? '', link, guestScopes)
  const { answers = held.answers } = hello
  const needed = operationsOf({ role, answers })
  if (guest !== null && !needed.every((operation) => mayDo(granted?.scopes ?? [], operation))) {
    return { role, answers: held.answers, token: null, ...guest }
  }
  // Else a token that was taken away would live on in the attachments made with it.
  if (granted === null) {
    throw new HoldfastError('unauthorized', 'the token that the attachment was made with is needed')
  }
  assertMay(granted, ...needed)
  const token = hello.auth?.token
  const { by, access } = token === undefined && guest !== null ? guest : granted
  return { role, answers, scopes: granted.scopes, token, by, access }
}

/** A use of a link is one watcher's: while that one is there, another needs a use of its own. */
async function freeUse(
  connection: Connection,
  { session, use }: HelloClaim,
): Promise<string | undefined> {
  const watcher = use === undefined ? null : await session.watcherOf(use)
  const older = watcher === null ? null : connection.hub.connectionOf(watcher)
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
  const operations: Exclude<Operation, 'server.look' | 'link.visit'>[] = ['session.read']
  if (role === 'driver') operations.push('turn.run')
  if (answers.length > 0) operations.push('ask.answer')
  return operations
}

type FreshAttachment = Pick<ClientIdentity, 'role' | 'answers'> & {
  readonly hello: Hello
  /** The attachment that it has a copy of. */
  readonly likewise?: Attachment
  readonly use?: string | undefined
}

/** Another driver may attach between two attempts, and may be gone again. */
const ATTACH_TRIES = 3

/** With `take`, this also ends the attachment of the previous driver. */
async function attachFresh(
  connection: Connection,
  session: SessionHandle,
  fresh: FreshAttachment,
  tries = ATTACH_TRIES,
): Promise<AttachmentHandle> {
  const { hub } = connection
  const { hello, ...place } = fresh
  const { take = false, auth } = hello
  try {
    if (take && hub.driversOf(session.id).length > 0) await connection.assertAlive()
    return await session.attach({
      ...place,
      take,
      resumable: true,
      signal: connection,
      link: auth?.link,
    })
  } catch (error) {
    const isInUse = error instanceof HoldfastError && error.code === 'in_use'
    if (!isInUse || fresh.role === 'watcher' || tries === 1) throw error
    // The other driver may be gone without being noticed.
    // One without a connection is being let in, or was lost meanwhile: soon it is clear which.
    if (hub.driversOf(session.id).length === 0) await connection.waitForSign()
    const drivers = hub.driversOf(session.id)
    const alive = await Promise.all(drivers.map((driver) => driver.isAlive()))
    if (alive.some(Boolean)) throw error
    await connection.assertAlive()
    for (const driver of drivers) await giveUp(driver)
    return attachFresh(connection, session, fresh, tries - 1)
  }
}
