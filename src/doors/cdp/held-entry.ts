/** How a client that may come back is let in: as a new one, or in the place it has. */
import {
  asHoldfastError,
  HoldfastError,
  type AttachmentHandle,
  type SessionHandle,
} from '../../core/index.ts'
import { ERROR_TABLE } from '../../wire/error-table.ts'
import {
  HELD_VERSION,
  isHeldFrame,
  readHeldFrame,
  writeHeldFrame,
  type HeldFrame,
  type HeldResume,
} from '../../wire/held.ts'
import type { CallerAddress } from './address.ts'
import type { CdpDoor, HeldSeat } from './door.ts'
import { HeldCarrier } from './held-carrier.ts'
import type { CdpSocket } from './socket-carrier.ts'
import type { CdpConnection } from './stock-connection.ts'

/** With the attachment as it was for this very connection: what an older one says is dropped. */
type Place = HeldSeat & { readonly attachment: AttachmentHandle }

/** The way to the node that owns the session. */
export interface HeldForwardedSocket {
  send(message: Buffer): void
  close(code: number): void
}

/** Brings a client there, with its first word. */
export type PassOn = (node: string, hello: string) => HeldForwardedSocket

type Arrival = {
  readonly address: CallerAddress
  readonly target: string | null
  readonly socket: CdpSocket
  /** Null: there is no other node, or one has passed it on already. */
  readonly passOn?: PassOn | null
}

/** One socket at `/held`. */
export class HeldConnection implements CdpConnection {
  readonly #door: CdpDoor
  readonly #address: CallerAddress
  readonly #target: string | null
  readonly #socket: CdpSocket
  readonly #passOn: PassOn | null
  #forwarded: HeldForwardedSocket | null = null
  #place: Place | null = null
  readonly #cancelHello: () => void
  #isGreeted = false
  #isClosed = false

  constructor(door: CdpDoor, { address, target, socket, passOn = null }: Arrival) {
    this.#passOn = passOn
    this.#door = door
    this.#address = address
    this.#target = target
    this.#socket = socket
    const { clock } = door.holdfast.authority
    this.#cancelHello = clock.after(door.limits.helloMs, () => {
      this.#refuse(new HoldfastError('bad_request', 'hello did not come in time'))
    })
  }

  receive(data: Buffer): void {
    if (this.#forwarded !== null) return this.#forwarded.send(data)
    try {
      if (isHeldFrame(data)) return this.#frame(data.toString())
      if (this.#place === null) throw new HoldfastError('bad_request', 'say hello first')
      // What an older connection still says is not for this one's place (I6).
      if (!this.#place.carrier.isCurrent(this.#socket)) return
      this.#place.carrier.count(data.length)
      this.#place.seat.client?.receive(data)
    } catch (thrown) {
      this.#refuse(asHoldfastError(thrown))
    }
  }

  #frame(text: string): void {
    const frame = readHeldFrame(text)
    switch (frame?.type) {
      case 'hello':
        return this.#hello(frame, text)
      case 'ping':
        return this.#socket.send(writeHeldFrame({ type: 'pong' }))
      case 'pong':
        return
      case 'ready':
        // If it is lost, the token before it stays good a little longer.
        void this.#place?.attachment.confirm().catch(() => undefined)
        return
      case 'ack':
        return this.#place?.carrier.confirm(frame.received)
      case 'bye':
        return this.#place?.seat.leave()
      default:
        throw new HoldfastError('bad_request', 'a frame cannot be read')
    }
  }

  #hello({ v, resume }: HeldFrame & { type: 'hello' }, text: string): void {
    if (this.#isGreeted) throw new HoldfastError('bad_request', 'hello was said already')
    this.#isGreeted = true
    this.#cancelHello()
    if (v !== HELD_VERSION) {
      throw new HoldfastError('version_unsupported', `this server speaks version ${HELD_VERSION}`)
    }
    const entered = resume === undefined ? this.#enter() : this.#comeBack(resume)
    entered
      .then((place) => this.#welcome(place))
      .catch((thrown: unknown) => this.#turnAway(asHoldfastError(thrown), text))
  }

  /** Whose session is another node's goes there. */
  #turnAway(error: HoldfastError, hello: string): void {
    const { node } = error.details
    const isElsewhere = error.code === 'not_owner' && typeof node === 'string'
    if (this.#passOn === null || !isElsewhere || this.#isClosed) return this.#refuse(error)
    this.#forwarded = this.#passOn(node, hello)
  }

  async #enter(): Promise<Place> {
    const { reconnect, key } = this.#address
    const policy = reconnect ?? (key === undefined ? 'resume' : 'reopen')
    const carrier = new HeldCarrier(this.#door.limits, this.#door.holdfast.authority.clock)
    const address = { ...this.#address, reconnect: policy }
    const seat = await this.#door.admit(address, { carrier, target: this.#target })
    carrier.onAway = () => seat.client?.actForAbsent()
    carrier.onOverflow = () => {
      seat.giveUp(new HoldfastError('too_slow', 'more was missed than is kept'))
    }
    return { seat, carrier, attachment: seat.attachment }
  }

  async #comeBack({ session, attachment, token, received }: HeldResume): Promise<Place> {
    const handle = this.#door.holdfast.as(this.#address.by).session(session)
    const known = this.#door.heldSeat(attachment)
    // Before the token is used up: a refusal must change nothing.
    if (known !== null) await handle.attachmentOf(attachment, token)
    known?.carrier.resume(received)
    const next = await handle.resume(attachment, token).catch(async (thrown: unknown) => {
      throw (await whyEnded(handle, { attachment, token })) ?? thrown
    })
    if (known === null) {
      // The browser went with the server that had it: no connection will ever hold this attachment.
      await next.leave('browser_gone')
      throw new HoldfastError('attachment_ended', 'the browser of this session is gone')
    }
    known.seat.attachment = next
    return { ...known, attachment: next }
  }

  async #welcome(place: Place): Promise<void> {
    const { seat, carrier } = place
    const { graceMs, reconnect } = await seat.session.state()
    this.#place = place
    const welcome: HeldFrame = {
      type: 'welcome',
      v: HELD_VERSION,
      session: seat.session.id,
      attachment: seat.attachment.id,
      token: reconnect === 'none' ? null : seat.attachment.token,
      received: carrier.received,
      graceMs,
    }
    if (!carrier.connect(this.#socket, welcome)) return this.#socket.close(1011, 'session_closed')
    // The socket was lost while it was let in.
    if (this.#isClosed) this.closed(1006)
  }

  #refuse(error: HoldfastError): void {
    const { code, message: reason, retry } = error
    this.#place?.seat.giveUp(error)
    const mayRetry = retry && error.details['isOver'] !== true
    this.#socket.send(writeHeldFrame({ type: 'end', code, reason, retry: mayRetry }))
    this.#socket.close(ERROR_TABLE[code].close ?? 4400, code)
  }

  /** The socket is closed; what that means for the client is the session's policy. */
  closed(code: number): void {
    this.#isClosed = true
    this.#cancelHello()
    this.#forwarded?.close(code)
    const place = this.#place
    if (place === null || !place.carrier.disconnected(this.#socket)) return
    if (code === 1000) return place.seat.leave()
    // A session that is gone meanwhile has ended its attachments already.
    void place.attachment.lose().catch(() => undefined)
  }
}

/** Why a place is gone while its client was away, for who held it; null: as everybody is told. */
async function whyEnded(
  handle: SessionHandle,
  held: { readonly attachment: string; readonly token: string },
): Promise<HoldfastError | null> {
  // Without a proof that it was there it is told what all others are.
  if (!(await handle.wasAttached(held).catch(() => false))) return null
  const { ended, closed } = await handle.state()
  const isSlow = ended.some(({ id, reason }) => id === held.attachment && reason === 'too_slow')
  const over = { isOver: true }
  if (isSlow) return new HoldfastError('too_slow', 'more was missed than is kept', over)
  if (closed?.reason !== 'browser_gone') return null
  return new HoldfastError('browser_gone', 'the browser of this session is gone', over)
}
