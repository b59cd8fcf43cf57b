/** What all parts of a node share. Time, randomness and digests are passed in by the caller. */
import type { Clock, Digest, Entropy } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import type { Limits } from './limits.ts'
import type { Usage } from './usage.ts'
import type { Store } from './store.ts'

export type CoreContext = {
  readonly store: Store
  readonly clock: Clock
  readonly entropy: Entropy
  readonly digest: Digest
  readonly limits: Limits
  readonly counters: Counters
  readonly diagnose: Diagnose
  readonly usage: Usage
}

/** What a node has counted since it started. Read by `/metrics`; nothing decides by it. */
export class Counters {
  sessionsCreated = 0
  sessionsClosed = 0
  sessionsLoaded = 0
  sessionsEvicted = 0
  /** Holds given up because the store refused or failed an append. */
  sessionsLost = 0
  /** Taken over from a node whose lease ended: each one a failover. */
  sessionsTakenOver = 0
  /** How often this node could not prove its lease in time, and let go of everything. */
  leasesLost = 0
  turnsStarted = 0
  turnsEnded = 0
  /** Requests refused with 429. */
  turnsRefused = 0
  /** Requests refused because their principal had reached a quota. */
  quotaRefusals = 0
  asksOpened = 0
  asksSettled = 0
  /** What runners said after their turn was over: dropped. */
  outputsLate = 0
  /** Activities of turns beyond the limit: dropped. */
  activitiesDropped = 0
  commits = 0
  appends = 0
  events = 0
}
