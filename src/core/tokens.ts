/** Secrets that open one session: returned once, kept only as digests. */
import type { Digest, Entropy } from './clock.ts'

/** 256 random bits. */
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
