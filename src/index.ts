/// <reference types="node" preserve="true" />
/** Holdfast, the session authority, as a library. */
export {
  AttachmentHandle,
  BUSY_POLICIES,
  DIAGNOSTICS,
  ERRORS,
  Holdfast,
  HoldfastError,
  LIMITS,
  RECONNECT_POLICIES,
  SessionHandle,
  STATE_LIMITS,
  TurnHandle,
} from './core/index.ts'
export { httpStatus } from './wire/error-table.ts'
export type {
  Activity,
  Append,
  AppendOutcome,
  Beat,
  Ask,
  AskOption,
  AskOutcome,
  Attachment,
  BusyPolicy,
  Claim,
  Delta,
  Diagnostic,
  DiagnosticCode,
  DiagnosticLevel,
  DiagnosticListener,
  ErrorCode,
  FollowOptions,
  Input,
  Limits,
  ListPage,
  ListQuery,
  Message,
  Principal,
  QueueRow,
  Question,
  ReadResult,
  ReconnectPolicy,
  Reply,
  Reservation,
  Reserved,
  ResolveOptions,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerResult,
  RunnerSession,
  RunnerTurn,
  Session,
  SessionEvent,
  SessionRow,
  Store,
  StoredEvent,
  TurnError,
  TurnOptions,
  TurnRecord,
  TurnState,
} from './core/index.ts'
export type { AgentConfig, HoldfastConfig } from './config/index.ts'
export { DiagnosticPrinter, type PrinterOptions } from './diagnostic-printer.ts'
export { builtinAgents, openHoldfast, type OpenOptions } from './open.ts'
export { acpRunner, type AcpOptions } from './runners/acp/index.ts'
export type { Agent, AgentContext, AgentQuestion, AgentResult } from './runners/function.ts'
export { openaiRunner, type OpenAiOptions } from './runners/openai/index.ts'
export { processRunner, type ProcessOptions } from './runners/process/index.ts'
export { MemoryStore } from './stores/memory.ts'
