/**
 * A line to a browser: whole messages of the Chrome DevTools Protocol both ways, in order. What a
 * message says is the door's concern.
 */
export interface BrowserConnection {
  /** The process that it leads to, if it was started here. */
  readonly pid?: number | undefined
  /** One message; its parts are put together. */
  send(...parts: readonly (string | Uint8Array)[]): void
  /** Resolves when nothing is left of it. */
  close(): Promise<void>
}

export type ConnectionEvents = {
  /** The bytes are the receiver's own: it may change them in place. */
  readonly message: (message: Buffer) => void
  /** A message that was too large to be kept, by how it begins and ends. */
  readonly tooLarge: (head: Buffer, tail: Buffer) => void
  /** Told once. */
  readonly closed: (reason: string) => void
}
