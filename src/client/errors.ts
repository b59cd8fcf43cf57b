/** How the client says no: the code is the contract, the message is for people. */
import type { Hint } from '../wire/frames.ts'

/** Why a session ended for this client, and what to offer a person. */
export type Ending = {
  readonly code: string
  readonly reason: string
  readonly hint: Hint | null
}

/** A refusal of the server, or the end of the session while something was pending. */
export class HoldfastClientError extends Error {
  override readonly name = 'HoldfastClientError'
  /** One of the server's codes, or `left`, `connection_lost`, `unreachable`. */
  readonly code: string
  /** Whether the same call may succeed later, unchanged. */
  readonly retry: boolean
  readonly hint: Hint | null

  constructor(
    code: string,
    message: string,
    { retry = false, hint = null }: { readonly retry?: boolean; readonly hint?: Hint | null } = {},
  ) {
    super(message)
    this.code = code
    this.retry = retry
    this.hint = hint
  }
}

export function errorOf({ code, reason, hint }: Ending): HoldfastClientError {
  return new HoldfastClientError(code, reason, { hint })
}
