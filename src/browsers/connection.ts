/** The connection to a browser, and the data of CDP messages. */

export type Params = Readonly<Record<string, unknown>>

export type CdpError = { readonly code: number; readonly message: string; readonly data?: unknown }

/** The browser's answer to a command: a result or an error. */
export type CdpReply = { readonly result?: Params; readonly error?: CdpError }

export type ReadReply = (reply: CdpReply) => void

export type CdpEvent = { readonly method: string; readonly params: Params }

/** One message in parts, which are sent as one. */
export type MessageParts = readonly (string | Uint8Array)[]

/** A connection to a browser: whole CDP messages both ways, in order. */
export interface BrowserConnection {
  /** The browser's process, if it was started here. */
  readonly pid?: number | undefined
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
