/// <reference types="node" preserve="true" />
/** Holdfast, the session authority, as a library. */
export { AttachmentHandle, Holdfast, SessionHandle, TurnHandle } from './core/index.ts'
export { DIAGNOSTICS, ERRORS, HoldfastError } from './core/index.ts'
export { BUSY_POLICIES, LIMITS, RECONNECT_POLICIES, STATE_LIMITS } from './core/index.ts'
export { httpStatus } from './wire/error-table.ts'
export { DiagnosticPrinter, type PrinterOptions } from './diagnostic-printer.ts'
export { builtinAgents, openHoldfast, type OpenOptions } from './open.ts'
export { acpRunner, type AcpOptions } from './runners/acp/index.ts'
export { claudeRunner, type ClaudeOptions } from './runners/claude/index.ts'
export { codexRunner, type CodexOptions } from './runners/codex/index.ts'
export { openaiRunner, type OpenAiOptions } from './runners/openai/index.ts'
export { processRunner, type ProcessOptions } from './runners/process/index.ts'
export { MemoryStore } from './stores/memory.ts'
export type { AgentConfig, HoldfastConfig } from './config/index.ts'

// Sessions, their turns and asks.
export type { FollowOptions, Input, Limits, Principal, ResolveOptions } from './core/index.ts'
export type { BlobPart, GivenInput, GivenPart, Part, TextPart } from './core/index.ts'
export type { QuotaName, QuotaOptions, Quotas } from './core/index.ts'
export type { Activity, Attachment, ReconnectPolicy, Session, SessionEvent } from './core/index.ts'
export type { BusyPolicy, Delta, Message, QueueRow, Reply, TurnOptions } from './core/index.ts'
export type { TurnError, TurnRecord, TurnState } from './core/index.ts'
export type { Ask, AskOption, AskOutcome, Question } from './core/index.ts'
export type { Diagnostic, DiagnosticCode, DiagnosticLevel } from './core/index.ts'
export type { DiagnosticListener, ErrorCode } from './core/index.ts'
// For agents and runners of your own.
export type { Agent, AgentContext, AgentQuestion, AgentResult } from './runners/function.ts'
export type { Runner, RunnerContext, RunnerOutput, RunnerResult } from './core/index.ts'
export type { RunnerPart, RunnerSession, RunnerTurn } from './core/index.ts'
// For a store of your own.
export type { Append, AppendOutcome, Beat, Claim, ListPage, ListQuery } from './core/index.ts'
export type { ReadResult, Reservation, Reserved, SessionRow } from './core/index.ts'
export type { GivenBlob, PutBlobs, Store, StoredEvent } from './core/index.ts'
