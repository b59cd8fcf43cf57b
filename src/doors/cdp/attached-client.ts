/**
 * A client of a browser session: its attachment, which the authority knows, and its CDP sessions.
 * This class reports a lost connection to the authority, which decides what the loss means.
 */
import { HoldfastError, type AttachmentHandle, type SessionHandle } from '../../core/index.ts'
import type { CdpClient, Outlet } from './client.ts'

/** What carries a client's messages to it: a socket, or one that may be replaced. */
export interface Carrier extends Outlet {
  /** The client's attachment is over, for this reason. */
  end(error: HoldfastError): void
}

export class AttachedClient {
  readonly session: SessionHandle
  readonly carrier: Carrier
  attachment: AttachmentHandle
  client: CdpClient | null = null
  /** Its connection is lost and cannot be resumed; another one may get its attachment. */
  isLost = false
  /** The client is gone for good, or another one has its attachment. */
  onEnd: () => void = () => undefined
  #isOver = false

  constructor({
    session,
    carrier,
    attachment,
  }: Pick<AttachedClient, 'session' | 'carrier' | 'attachment'>) {
    this.session = session
    this.carrier = carrier
    this.attachment = attachment
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** The client said goodbye. */
  leave(): void {
    void this.attachment.leave().catch(() => undefined)
    this.end(new HoldfastError('attachment_ended', 'the client has left'))
  }

  /** The client cannot be served any longer, for this reason. */
  giveUp(why: HoldfastError): void {
    void this.attachment.leave(why.code).catch(() => undefined)
    this.end(why)
  }

  /** The connection is lost for good, but the place may be kept for the client's next one. */
  async lose(): Promise<void> {
    if (this.#isOver || this.isLost) return
    this.isLost = true
    this.client?.endSessions()
    // A session that is gone meanwhile has ended its attachments already.
    await this.attachment.lose().catch(() => undefined)
  }

  /** The attachment is over, or the session, or the browser. */
  end(error: HoldfastError): void {
    if (this.#isOver) return
    this.#isOver = true
    this.client?.end()
    this.carrier.end(error)
    this.onEnd()
  }

  /** Another connection takes the place: what the client had made stays. */
  give(next: AttachedClient): void {
    this.#isOver = true
    this.onEnd()
    if (this.client !== null && next.client !== null) {
      this.client.tenant.handOver(this.client, next.client)
    }
  }
}
