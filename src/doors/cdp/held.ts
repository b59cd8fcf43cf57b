/** The service at `/held`: CDP messages to a browser, over a connection that can be resumed. */
import { HoldfastError, type SessionHandle } from '../../core/index.ts'
import { readReplayHello } from '../../wire/client-frames.ts'
import type { Hello, Resume } from '../../wire/frames.ts'
import { FRAME_MARK, REPLAY_VERSION } from '../../wire/replay.ts'
import { resumeFor, welcomeOf } from '../connect/admission.ts'
import type { Channel, Connection, Service, WelcomedClient } from '../connect/connection.ts'
import { OPERATIONS } from '../../core/access.ts'
import type { CallerAddress } from './address.ts'
import type { CdpDoor, HeldClient } from './door.ts'
import { HeldCarrier } from './attached-client.ts'

export type HeldServiceOptions = {
  readonly door: CdpDoor
  readonly address: CallerAddress
  /** The page that it is for; null: the browser. */
  readonly target: string | null
  /** The token that the request for the socket showed. */
  readonly token: string | undefined
  readonly forwarding?: Service['forwarding']
}

export function heldService(options: HeldServiceOptions): Service {
  return {
    door: 'cdp',
    mark: FRAME_MARK,
    readHello: readReplayHello,
    forwarding: options.forwarding ?? {},
    admit: (connection, hello) => admit(options, connection, hello),
  }
}

async function admit(
  options: HeldServiceOptions,
  connection: Connection,
  hello: Hello,
): Promise<WelcomedClient> {
  assertVersion(connection, hello)
  connection.countFor(options.address, hello)
  const { token } = options
  const { resume } = hello.auth ?? {}
  const held = await (resume === undefined
    ? enter(options)
    : comeBack(options, connection, hello, resume))
  const { session, attachment, carrier } = held
  const overview = await session.overview()
  if (held.isOver) throw new HoldfastError('attachment_ended', 'the attachment is over')
  const role = 'driver'
  const scopes = [OPERATIONS['browser.use']]
  const base = welcomeOf(connection, { session, attachment, role, scopes }, overview, {
    ...{ answers: [], presence: true },
  })
  const { received } = carrier.replay
  const resumable = overview.session.reconnect === 'none' ? { resume: null } : {}
  const welcome = { ...base, ...resumable, v: REPLAY_VERSION, received }
  const channel = messageChannel(connection, held)
  return { client: { session, attachment, role, scopes, token, channel }, welcome }
}

/** Clients of 0.1.0 know no `refuse`: they get the frame that they know. */
function assertVersion(connection: Connection, { v }: Hello): void {
  if (v === REPLAY_VERSION) return
  const code = 'version_unsupported'
  const reason = `this server speaks version ${REPLAY_VERSION}: update holdfast/cdp`
  const end = { type: 'end', code, reason, retry: false }
  if (v === 1) connection.socket.send(FRAME_MARK + JSON.stringify(end))
  throw new HoldfastError(code, reason)
}

async function enter({ door, address, target }: HeldServiceOptions): Promise<HeldClient> {
  const reconnect = address.reconnect ?? (address.key === undefined ? 'resume' : 'reopen')
  const carrier = new HeldCarrier(door.limits, door.holdfast.authority.clock)
  return (await door.admit({ ...address, reconnect }, { carrier, target })) as HeldClient
}

async function comeBack(
  options: HeldServiceOptions,
  connection: Connection,
  { session = '', received = 0, take }: Hello,
  resume: Resume,
): Promise<HeldClient> {
  const { door, address } = options
  const handle = door.holdfast.as(address.by, address.access).session(session)
  const known = door.heldClient(resume.attachment)
  try {
    const { isReplaced } = await handle.attachmentOf(resume.attachment, resume.token)
    const { labels } = await handle.state()
    if ((labels['browser'] ?? address.browser) !== address.browser) {
      throw new HoldfastError('attachment_unknown', 'there is no such attachment')
    }
    // Before the token is used up: a refusal must change nothing.
    known?.carrier.confirm(received)
    const claim = { session: handle, resume, take, isReplaced }
    const attachment = await resumeFor(connection, claim)
    if (attachment === null) throw new HoldfastError('in_use', 'another connection has this')
    if (known !== null && !known.isOver) {
      known.attachment = attachment
      return known
    }
    // The browser went with the server that had it: no connection will ever hold this attachment.
    await attachment.leave('browser_gone')
    throw new HoldfastError('attachment_ended', 'the browser of this session is gone')
  } catch (thrown) {
    throw (await whyEnded(handle, resume)) ?? thrown
  }
}

/** What was missed is sent first; from then on messages go both ways. */
function messageChannel(connection: Connection, held: HeldClient): Channel {
  const { carrier } = held
  return {
    begin: () => carrier.connect(connection),
    take: (frame) => {
      if (frame.type !== 'ack') throw new HoldfastError('bad_request', 'this is for another door')
      carrier.confirm(frame.received)
    },
    message: (data) => {
      carrier.replay.count(data)
      held.receive(data)
    },
    end: (left) => {
      carrier.disconnected(connection)
      if (left) held.end(new HoldfastError('attachment_ended', 'the client has left'))
    },
  }
}

/** Why an attachment ended while its client was away; null: nothing more to say. */
async function whyEnded(session: SessionHandle, resume: Resume): Promise<HoldfastError | null> {
  // Only a client that proves that it was attached learns more.
  if (!(await session.wasAttached(resume).catch(() => false))) return null
  const { ended, closed } = await session.state()
  const isSlow = ended.some(({ id, reason }) => id === resume.attachment && reason === 'too_slow')
  const over = { isOver: true }
  if (isSlow) return new HoldfastError('too_slow', 'more was missed than is kept', over)
  if (closed?.reason !== 'browser_gone') return null
  return new HoldfastError('browser_gone', 'the browser of this session is gone', over)
}
