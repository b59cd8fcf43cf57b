/** Tells the doors, which hold the connections, what became of attachments. */
import type { Diagnose } from './diagnostics.ts'
import { messageOf, type HoldfastError } from './errors.ts'

export type AttachmentListener = {
  /** It is over, and why. */
  readonly ended: (attachment: string, reason: string) => void
  /** Its session was released: the next owner counts its connection as lost. */
  readonly lost: (attachment: string, why: HoldfastError) => void
}

export class AttachmentListeners extends Set<AttachmentListener> {
  readonly #diagnose: Diagnose

  constructor(diagnose: Diagnose) {
    super()
    this.#diagnose = diagnose
  }

  /** The event is durable: a listener that fails must not undo what follows. */
  tell(attachment: string, tell: (listener: AttachmentListener) => void): void {
    for (const listener of this) {
      try {
        tell(listener)
      } catch (error) {
        const facts = { attachment, error: messageOf(error) }
        this.#diagnose('listener_failed', 'a listener for attachments failed', facts)
      }
    }
  }
}
