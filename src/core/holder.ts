/** What a held session needs from its authority. */
import type { Clock, Digest, Entropy } from './clock.ts'
import type { GroupCommit } from './commits.ts'
import type { Counters } from './counters.ts'
import type { Diagnose } from './diagnostics.ts'
import type { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import type { LiveSession } from './live.ts'
import type { Runner } from './runner.ts'
import type { Store } from './store.ts'

export interface Holder {
  readonly store: Store
  readonly commits: GroupCommit
  readonly clock: Clock
  readonly limits: Limits
  readonly digest: Digest
  readonly entropy: Entropy
  readonly counters: Counters
  readonly diagnose: Diagnose
  /** No turn starts any more: the node is about to stop. */
  readonly draining: boolean
  runner(agent: string): Runner | null
  /** A client's hold is over, whoever ended it. */
  attachmentEnded(attachment: string, reason: string): void
  /** The hold is over, and the next owner counts this client's connection as lost. */
  attachmentLost(attachment: string, why: HoldfastError): void
  /** The hold is over: the session is closed, or this node may no longer speak for it. */
  released(session: LiveSession, why: HoldfastError): void
}
