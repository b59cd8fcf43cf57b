import { LOCAL } from '../../core/index.ts'
import type { Caller, Scope } from '../../core/access.ts'

/**
 * A connection as the door sees it. The framing is `ws`'s; a test may put a fake wire in its
 * place.
 */
export interface Socket {
  /** The peer's address, for limits only. */
  readonly address: string
  /** It comes from another node, which must get its answer here. */
  readonly isForwarded?: boolean
  /** What was sent and has not left this process, in bytes. */
  readonly bufferedBytes: number
  /** `sent` is called when it has left, or cannot any more. */
  send(data: string | Uint8Array, sent?: () => void): void
  close(code: number, reason: string): void
  /** Cuts the connection without a goodbye. */
  cut(): void
  /** Bytes that have come: a large message shows that the peer is alive before it is complete. */
  readonly bytesRead?: number
  /** It is not read for now, so nothing is heard of it. */
  readonly isPaused?: boolean
  setPaused?(isPaused: boolean): void
}

/** The way to the node that owns the session. */
export interface ForwardedSocket {
  send(message: string | Buffer): void
  /** The client is gone; without a code its connection broke. */
  close(code?: number): void
}

/** A client whose session another node owns. */
export type ForwardedSocketOptions = {
  /** Its first message, as it came. */
  readonly hello: string
  readonly address: string
  readonly bufferedBytesMax: number
  /** Where it knocked, if not at this door's own path, and what it showed. */
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly messageBytesMax?: number
  /** The owner said this. */
  readonly onMessage: (message: Buffer) => void
  /** The owner has closed, or cannot be reached (any more). */
  readonly onClose: (code: number, reason: string) => void
}

export interface SocketForwarder {
  open(node: string, options: ForwardedSocketOptions): ForwardedSocket
}

/** Decides which clients may connect. */
export interface Gatekeeper {
  /**
   * What has to be waited for before a token is checked; null if nothing has. Rejects if it cannot
   * be checked now.
   */
  prepare(token: string | undefined): Promise<void> | null
  /** What this token may do; null: nothing. Undefined: no token was shown. */
  grant(token: string | undefined): readonly Scope[] | null
  /** On whose behalf its holder acts; null: the token is unknown. */
  callerOf(token: string | undefined): Caller | null
  /**
   * `end` is called when this token no longer has all of these scopes, perhaps at once. The
   * returned function is for when what was let in by it is over.
   */
  hold(token: string | undefined, scopes: readonly Scope[], end: () => void): () => void
  /** A client at this address showed a secret that is not good; throws if it is one too many. */
  failed(address: string): void
}

/** A server on loopback without tokens: everybody may do everything. */
export const openGate: Gatekeeper = {
  prepare: () => null,
  grant: () => ['watch', 'talk', 'answer', 'admin'],
  callerOf: () => ({ by: LOCAL, access: null }),
  hold: () => () => undefined,
  failed: () => undefined,
}
