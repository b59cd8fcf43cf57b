/** What all connections of the Copilot door share. */
import type { Clock, Holdfast, Unbound } from '../../core/index.ts'
import type { Gatekeeper } from '../connect/socket.ts'
import type { Unread } from '../unread.ts'
import type { AttachedSession } from './attached-session.ts'
import type { CopilotLimits } from './limits.ts'
import type { CopilotForwarder, UpstreamClient } from './upstream.ts'

export interface DoorContext {
  readonly holdfast: Unbound
  readonly gate: Gatekeeper
  readonly limits: CopilotLimits
  readonly forwarder: CopilotForwarder | null
  readonly unread: Unread
  readonly clock: Clock
  readonly version: string
  isDraining(): boolean
  admitted(connection: UpstreamClient): void
  closed(connection: UpstreamClient): void
  /** So that the end of an attachment reaches its connection. */
  attached(attachment: string, session: AttachedSession): void
  detached(attachment: string): void
  /** `isNew`: the owner that was known before is gone. */
  ownerOf(holdfast: Holdfast, name: string, isNew: boolean): Promise<string | null>
}
