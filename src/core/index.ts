/** The core's front door, for stores, runners, doors and the library. */
export {
  assertMayDo,
  DEFAULT_PRINCIPAL,
  groupId,
  mayDo,
  OPERATIONS,
  SCOPES,
  scopesOn,
  withIncluded,
  type Access,
  type Caller,
  type Operation,
  type Scope,
  type SharedKeys,
} from './access.ts'
export type { AskFilter } from './answerers.ts'
export { AnswerText } from './answer-text.ts'
export { chosen, openedAsk, type Choice } from './asks.ts'
export { attachmentIn, connectedAs, mayComeBack } from './attachments.ts'
export type { AttachmentListener } from './attachment-listeners.ts'
export { Authority, type AuthorityOptions } from './authority.ts'
export type { FollowChangesOptions } from './commits.ts'
export type { Clock, Digest, Entropy } from './clock.ts'
export { closedError } from './closing.ts'
export type { Command, SettingsChange, TurnEnd } from './commands.ts'
export {
  DIAGNOSTICS,
  diagnoseTo,
  diagnoseToAll,
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
export { EVENT_TYPES, isKnownType, isReadable } from './events.ts'
export type { EventOf, SessionEvent } from './events.ts'
export type { StopSignal } from './feed.ts'
export {
  Counters,
  Figures,
  Histogram,
  type AgentFigures,
  type Load,
  type RunEnd,
} from './figures.ts'
export { FeedItem, positionAfter, type Delta, type Position } from './feed-item.ts'
export { Holdfast, type ForkOptions, type HoldfastOptions, type Unbound } from './holdfast.ts'
export { POSITION_KIND, readableRow, type PageBefore } from './history.ts'
export { newest } from './origins.ts'
export type { FollowAsksOptions, InboxEvent, InboxPage, OpenAsk, OpenAskPage } from './inbox.ts'
export { LIMITS, STATE_LIMITS, type Limits } from './limits.ts'
export { checkLog, LogCheck, type CheckedEvent, type Findings } from './log-check.ts'
export { FoldedLog } from './loading.ts'
export type { PrincipalErasure } from './principal-erasure.ts'
export {
  checkRetention,
  previewRetention,
  RETENTION_BOUNDS,
  RETENTION_CONDITIONS,
  type RetentionPreview,
  type RetentionRule,
  type SessionArchive,
} from './retention.ts'
export { checkRules, DECISIONS, RULE_CONDITIONS, Rules, traceRules } from './rules.ts'
export type { Rule, RuleCondition, RuleRequest } from './rules.ts'
export { checkQuotas, QUOTAS } from './quotas.ts'
export type { QuotaName, QuotaOptions, Quotas } from './quotas.ts'
export { ISSUER, LOCAL, linkPrincipal, type Principal } from './state.ts'
export { isRequestId } from './queue.ts'
export type { Overview } from './overview.ts'
export { type QueueRow } from './queued-request.ts'
export { idempotencyMismatch } from './request-keys.ts'
export {
  BUSY_POLICIES,
  checkSessionId,
  inputDigest,
  type BusyPolicy,
  type LinkOptions,
  type ResolveOptions,
  type TurnOptions,
} from './requests.ts'
export { blobsNamedBy, type GivenInput, type GivenPart } from './parts.ts'
export {
  NO_CAPABILITIES,
  type AdoptedConversation,
  type Capabilities,
  type ErasedSession,
  type ForkSource,
  type LeftFiles,
  type Message,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerPart,
  type RunnerResult,
  type RunnerSession,
  type OpenedSession,
  type LastPosition,
  type TerminalCommand,
  type RunnerTurn,
} from './runner.ts'
export type { ClientAnswer, TurnClient, TurnClients } from './turn-clients.ts'
export { calledTool, toolKind, type ClientTool, type ClientTools } from './client-tools.ts'
export { decide, evolve } from './session.ts'
export { AttachmentHandle, WatcherHandle, type AttachOptions } from './attachment-handle.ts'
export { SessionHandle } from './session-handle.ts'
export type { FollowOptions } from './readable-events.ts'
export type {
  Append,
  AppendOutcome,
  Beat,
  AppendedAsks,
  AppendedKeys,
  AskPage,
  AskQuery,
  AskRow,
  AuditRecord,
  ChangePage,
  Claim,
  Cluster,
  CopiedBlobs,
  GivenBlob,
  PutBlobs,
  KeyedTurn,
  KeyQuery,
  ListCount,
  ListLabel,
  ListPage,
  ListQuery,
  NodeRow,
  ReadResult,
  Reservation,
  Reserved,
  RestoredSession,
  SessionChange,
  SessionRef,
  SessionRow,
  SessionStatus,
  Store,
  StoredAuditRecord,
  StoredEvent,
} from './store.ts'
export {
  ANSWERED_BY,
  ANSWER_FORMS,
  LINK_SCOPES,
  RECONNECT_POLICIES,
  ROLES,
  type Activity,
  type AnswerForm,
  type Ask,
  type AskDetail,
  type AskOption,
  type AskOutcome,
  type Attachment,
  type FileDiff,
  type Grant,
  type Input,
  type Link,
  type BlobPart,
  type Part,
  type TextPart,
  type LinkScope,
  type EarlierMessage,
  type Origin,
  type ReconnectPolicy,
  type Reply,
  type Role,
  type Session,
  SETTING_NAMES,
  type SettingName,
  type Settings,
  type Share,
  TOOL_KINDS,
  type ToolCall,
  type ToolKind,
  type TurnError,
  type TurnState,
  type Usage,
} from './state.ts'
export { readSnapshot, SNAPSHOT_FORMAT } from './snapshots.ts'
export type { Question } from './questions.ts'
export { isTerminal, partsOf, turnSeq } from './turns.ts'
export { TurnHandle, type Admission, type SubmittedTurn, type TurnRecord } from './turn-record.ts'
export { isWatcherId } from './watchers.ts'
export { limitsFrom } from './limits.ts'
