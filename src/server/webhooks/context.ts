/** What the webhooks of a server share. */
import type { Authority } from '../../core/index.ts'
import type { HostResolver } from '../../platform/resolver.ts'

export const WEBHOOK_LIMITS = {
  /** How long one attempt may take, from the name of the host to the end of the answer. */
  sendMs: 10_000,
  /** Until the second attempt; each further one waits twice as long, up to the longest. */
  retryMs: 1_000,
  retryMsMax: 600_000,
  /** How long a node delivers without renewing it. */
  leaseMs: 30_000,
  /** Between two looks at which webhooks no node delivers. */
  lookMs: 2_000,
  /** What is under way when the server stops has so long. */
  farewellMs: 2_000,
} as const
export type WebhookLimits = { readonly [Name in keyof typeof WEBHOOK_LIMITS]: number }

export type WebhookContext = {
  readonly authority: Authority
  readonly resolver: HostResolver
  readonly limits: WebhookLimits
  readonly redact: (text: string) => string
  /** A token for a link to an ask. */
  readonly askLink: (session: string, ask: string) => Promise<string>
}
