/** The core's front door, for stores, runners, doors and the library. */
export type { Activity } from './activities.ts'
export { BUSY_POLICIES, type BusyPolicy } from './admission.ts'
export type { Ask, AskOption, AskOutcome, Question } from './asks.ts'
export {
  RECONNECT_POLICIES,
  ROLES,
  attachmentIn,
  connectedAs,
  mayComeBack,
  type Attachment,
  type ReconnectPolicy,
  type Role,
} from './attachments.ts'
export { Authority, type AttachmentListener, type AuthorityOptions } from './authority.ts'
export type { Clock, Digest, Entropy } from './clock.ts'
export { Counters } from './counters.ts'
export {
  DIAGNOSTICS,
  diagnoseTo,
  type Diagnose,
  type Diagnostic,
  type DiagnosticCode,
  type DiagnosticLevel,
  type DiagnosticListener,
  type Facts,
} from './diagnostics.ts'
export {
  ERRORS,
  HoldfastError,
  asHoldfastError,
  invalid,
  type ErrorCode,
  messageOf,
} from './errors.ts'
export { EVENT_TYPES, isKnownType, isReadable } from './event-table.ts'
export type { StopSignal } from './feed.ts'
export { FeedItem, positionAfter, type Delta, type Position } from './feed-item.ts'
export { BROWSER_KEYS, Holdfast, type HoldfastOptions, type Unbound } from './holdfast.ts'
export { isRequestId, type QueueRow } from './lanes.ts'
export { LINK_SCOPES, type Link, type LinkScope } from './links.ts'
export { LIMITS, STATE_LIMITS, type Limits } from './limits.ts'
export { FoldedLog } from './loading.ts'
export { ISSUER, LOCAL, linkPrincipal, type Principal } from './principal.ts'
export type { ResolveOptions, TurnOptions } from './requests.ts'
export type {
  Message,
  Reply,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerResult,
  RunnerSession,
  RunnerTurn,
} from './runner.ts'
export {
  closedError,
  decide,
  evolve,
  type Command,
  type Session,
  type SessionEvent,
} from './session.ts'
export {
  AttachmentHandle,
  SessionHandle,
  WatcherHandle,
  type AttachOptions,
  type FollowOptions,
  type LinkOptions,
} from './session-handle.ts'
export type {
  Append,
  AppendOutcome,
  Beat,
  AppendedKeys,
  Claim,
  Cluster,
  KeyedTurn,
  KeyQuery,
  ListPage,
  ListQuery,
  NodeRow,
  ReadResult,
  Reservation,
  Reserved,
  SessionRow,
  Store,
  StoredEvent,
} from './store.ts'
export { readSnapshot, SNAPSHOT_FORMAT } from './snapshots.ts'
export { TurnHandle, type Admission } from './turn-handle.ts'
export type { Input, TurnEnd, TurnError, TurnRecord, TurnState } from './turns.ts'
export { isWatcherId } from './watchers.ts'
export { limitsFrom } from './limits.ts'
