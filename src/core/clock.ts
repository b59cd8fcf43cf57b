/**
 * Time, randomness and digests as the core sees them: always passed in, so that a test can own
 * them.
 */
export interface Clock {
  /**
   * Milliseconds since 1970, for records and stored deadlines: where nodes share a store that has a
   * clock, the store's. May jump.
   */
  now(): number
  /** Milliseconds that only go forward, for deadlines and leases. */
  monotonic(): number
  /**
   * Runs once after `ms` of monotonic time; 0 means after all that is ready now. The returned
   * function cancels it.
   */
  after(ms: number, run: () => void): () => void
}

export interface Entropy {
  /** An unguessable id of at least 128 bits, safe in a URL. */
  id(): string
}

/**
 * A collision-free fingerprint, SHA-256: two requests with one idempotency key are compared by it,
 * and bytes are named by it. Base64url, unless hexadecimal digits are asked for.
 */
export type Digest = (data: string | Uint8Array, encoding?: 'hex') => string
