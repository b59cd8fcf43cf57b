/** The client's front door, for browsers and Node. */
export { Client, connect, type ConnectOptions } from './client.ts'
export { HoldfastClientError } from './endings.ts'
export type { ClientState } from './connection.ts'
export type {
  ClientClock,
  ClientSocket,
  ClientSocketClass,
  ClientSocketEvent,
  ClientStorage,
} from './platform.ts'
export type { ClientBlob, ClientInput, ClientPart } from './parts.ts'
export {
  ClientSession,
  type ClientSessionEvents,
  type ClientSessionOptions,
  type ClientTurnOptions,
  type SessionInfo,
} from './session.ts'
export { ClientTurn, type ClientMessage, type ClientTurnResult } from './turns.ts'
export type { Ask, Delta, Hint, Input, Part, Role, Seen, SessionEvent } from '../wire/frames.ts'
export { foldToolCall } from '../wire/tool-calls.ts'
