/** The connection to a browser, and the data of CDP messages. */
import { randomBytes } from 'node:crypto'

export type Params = Readonly<Record<string, unknown>>

export type CdpError = { readonly code: number; readonly message: string; readonly data?: unknown }

/** The browser's answer to a command: a result or an error. */
export type CdpReply = { readonly result?: Params; readonly error?: CdpError }

export type ReadReply = (reply: CdpReply) => void

export type CdpEvent = { readonly method: string; readonly params: Params }

export type CdpMessage = CdpReply &
  Partial<CdpEvent> & { readonly id?: number; readonly sessionId?: string }

/** One message in parts, which are sent as one. */
export type MessageParts = readonly (string | Uint8Array)[]

/** A connection to a browser: whole CDP messages both ways, in order. */
export interface BrowserConnection {
  /** The browser's process, if it was started here. */
  readonly pid?: number | undefined
  /** Where downloads go; only if its pages may not reach everything (egress). */
  readonly downloads?: string | undefined
  send(...parts: MessageParts): void
  /** Resolves when nothing is left of it. */
  close(): Promise<void>
}

export type ConnectionEvents = {
  /** The bytes are the receiver's own: it may change them in place. */
  readonly message: (message: Buffer) => void
  /** A message that was too large to be kept, by how it begins and ends. */
  readonly tooLarge: (head: Buffer, tail: Buffer) => void
  /** Called once. */
  readonly closed: (reason: string) => void
}

/** As Chrome words them. */
export const CDP_ERRORS = {
  parse: { code: -32700, message: 'JSON: syntax error' },
  values: { code: -32600, message: 'Message has too many values in it' },
  odd: { code: -32600, message: 'Message is malformed, and too large to tell how' },
  session: { code: -32001, message: 'Session with given id not found.' },
  child: { code: -32602, message: 'No session with given id' },
  target: { code: -32602, message: 'No target with given id found' },
  context: { code: -32602, message: 'Failed to find browser context with given id' },
} as const

/** As long as Chrome's own ids, and as hard to guess. */
export function newSessionId(): string {
  return randomBytes(16).toString('hex').toUpperCase()
}

/** A message as text, in a session; '' is the connection itself. */
export function messageText(message: object, session: string): Buffer {
  return Buffer.from(JSON.stringify(session === '' ? message : { ...message, sessionId: session }))
}
