/** Secrets that open a session: told once, kept only as digests, useless for any other session. */
import type { Digest, Entropy } from './clock.ts'

/** 256 bits that nobody can guess. */
export function newToken({ entropy }: { readonly entropy: Entropy }): string {
  return entropy.id() + entropy.id()
}

/** What is kept of a token. The kind and the session are in it, so it fits nowhere else. */
export function tokenDigest(
  { digest }: { readonly digest: Digest },
  kind: 'resume' | 'link',
  session: string,
  token: string,
): string {
  return digest(JSON.stringify([kind, session, token]))
}
