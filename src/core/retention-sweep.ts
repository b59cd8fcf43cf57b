/**
 * Erases what retention does not keep, a part of it with each sweep. A session is in the archive
 * before it is erased, so that after a crash in between the next round finds it in both, and erases
 * it without archiving it again.
 */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'
import { asHoldfastError, messageOf } from './errors.ts'
import type { Counters } from './figures.ts'
import type { Limits } from './limits.ts'
import { RetentionJudge, type RetentionRule, type SessionArchive } from './retention.ts'
import type { SessionRow, Store } from './store.ts'

/** What retention needs of a node. */
export interface RetainingNode {
  readonly node: string
  readonly store: Store
  readonly clock: Clock
  readonly limits: Limits
  readonly diagnose: Diagnose
  readonly retention: readonly RetentionRule[]
  /** Null: nothing is archived. */
  readonly archive: SessionArchive | null
  readonly counters: Pick<Counters, 'sessionsRetired' | 'sessionsArchived'>
  erase(id: string, agent: string): Promise<unknown>
}

/** Sessions that one sweep looks at; the next sweep goes on behind them. */
const JUDGED_MAX = 5_000
/** After so many failures in a row a sweep is over: the archive is full, or the store away. */
const FAILURES_MAX = 3
/** What needs no report: it is over, another node's, or was reported when it was met. */
const TOLD = ['session_closed', 'session_erased', 'not_owner', 'session_unreadable', 'lease_lost']

/** Sessions that are judged, from the newest on, over as many sweeps as that takes. */
type Round = {
  readonly judge: RetentionJudge
  readonly closedBefore: number
  readonly cursor: string | null
}

export class RetentionSweep {
  readonly #node: RetainingNode
  /** Null: the next sweep begins at the newest. */
  #round: Round | null = null
  #isStopped = false

  constructor(node: RetainingNode) {
    this.#node = node
  }

  stop(): void {
    this.#isStopped = true
  }

  async sweep(): Promise<void> {
    const { store, limits } = this.#node
    const round = this.#round ?? this.#newRound()
    // A sweep that fails has counted sessions that it has not passed: the next one begins anew.
    this.#round = null
    let { cursor } = round
    let failures = 0
    for (let left = JUDGED_MAX; left > 0 && failures < FAILURES_MAX && !this.#isStopped;) {
      const query = { closedBefore: round.closedBefore, limit: Math.min(limits.listMax, left) }
      const page = await store.list(cursor === null ? query : { ...query, cursor })
      failures = await this.#retireAll(this.#dueIn(page.sessions, round.judge), failures)
      cursor = page.nextCursor
      left = cursor === null ? 0 : left - page.sessions.length
    }
    this.#round = cursor === null ? null : { ...round, cursor }
  }

  #newRound(): Round {
    const { clock, limits, retention } = this.#node
    const judge = new RetentionJudge(retention, limits.retainMs)
    return { judge, closedBefore: clock.now() - judge.ageMsMin, cursor: null }
  }

  #dueIn(rows: readonly SessionRow[], judge: RetentionJudge): readonly SessionRow[] {
    const now = this.#node.clock.now()
    return rows.filter((row) => judge.judge(row, now).beyond !== null)
  }

  /** Returns how many have failed in a row. Those are tried again in the next round. */
  async #retireAll(due: readonly SessionRow[], before: number): Promise<number> {
    if (due.length === 0 || !(await this.#isKeeper())) return before
    let failures = before
    for (const row of due) {
      if (this.#isStopped || failures >= FAILURES_MAX) return failures
      failures = (await this.#retire(row)) ? 0 : failures + 1
    }
    // One that fails by its own fault keeps no later page waiting.
    return failures >= FAILURES_MAX ? failures : 0
  }

  async #retire(row: SessionRow): Promise<boolean> {
    const { id, agent } = row
    if (!(await this.#archive(row))) return false
    try {
      await this.#node.erase(id, agent)
      this.#node.counters.sessionsRetired += 1
    } catch (error) {
      if (TOLD.includes(asHoldfastError(error).code)) return true
      const facts = { reason: 'erase', session: id, error: messageOf(error) }
      this.#node.diagnose('sweep_failed', 'a session could not be seen to', facts)
    }
    return true
  }

  async #archive(row: SessionRow): Promise<boolean> {
    const { archive, store, counters, diagnose } = this.#node
    if (archive === null) return true
    try {
      await archive.keep(row, store)
      counters.sessionsArchived += 1
      return true
    } catch (error) {
      const facts = { session: row.id, error: messageOf(error) }
      diagnose('archive_failed', 'a session was not archived, and so not erased', facts)
      return false
    }
  }

  /**
   * With an archive one node is enough: the one that has lived for the longest. Should two think
   * so, both do the same.
   */
  async #isKeeper(): Promise<boolean> {
    const { archive, store, node } = this.#node
    if (archive === null || store.cluster === undefined) return true
    const [oldest] = (await store.cluster.nodes()).filter(({ leaseMs }) => leaseMs > 0)
    return oldest === undefined || oldest.name === node
  }
}
