/** What all parts of a node share. Time, randomness and digests are passed in by the caller. */
import type { ClientTools } from './client-tools.ts'
import type { Clock, Digest, Entropy } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import type { Counters, Figures } from './figures.ts'
import type { Limits } from './limits.ts'
import type { TurnClients } from './turn-clients.ts'
import type { Rules } from './rules.ts'
import type { Usage } from './usage.ts'
import type { Store } from './store.ts'

export type CoreContext = {
  readonly store: Store
  readonly clock: Clock
  readonly entropy: Entropy
  readonly digest: Digest
  readonly limits: Limits
  readonly counters: Counters
  readonly figures: Figures
  readonly diagnose: Diagnose
  readonly usage: Usage
  readonly turnClients: TurnClients
  readonly clientTools: ClientTools
  readonly rules: Rules
}
