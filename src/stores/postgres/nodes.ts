/**
 * The nodes that live: one row each, a lease on the database's clock. Beats go out one after the
 * other, so that none that was late can undo the last one.
 */
import { HoldfastError } from '../../core/errors.ts'
import type { Beat, Cluster, NodeRow, SessionRef } from '../../core/store.ts'
import { nameFrom, storedName } from '../names.ts'
import type { Database } from './database.ts'
import type { Statements } from './statements.ts'

/** What a node writes into its row. */
export type NodeFacts = {
  readonly url: string | null
  readonly version: string
  /** A digest of the secret that it shares with the others, if it has one. */
  readonly secret: string | null
}

/** A beat that takes longer is given up: the next one is due. */
const BEAT_MS_MIN = 500
const BEAT_MS_MAX = 5_000
/** Between two times of tidying up. */
const TIDY_MS = 10_000

export class Nodes implements Cluster {
  readonly #database: Database
  readonly #sql: Statements
  readonly #url: string | null
  readonly #version: string
  readonly #secret: string | null
  #lastBeat: Promise<unknown> = Promise.resolve()
  /** Nodes that must have a row: if it is missing, others took the node for dead. */
  readonly #beating = new Set<string>()
  #tidiedAt = Number.NEGATIVE_INFINITY
  /** The first beat has to connect too, and nothing hangs on its lease yet. */
  #isFirst = true

  constructor(database: Database, sql: Statements, { url, version, secret }: NodeFacts) {
    this.#database = database
    this.#sql = sql
    this.#url = url
    this.#version = version
    this.#secret = secret
  }

  beat(node: string, leaseMs: number): Promise<Beat> {
    const beating = this.#lastBeat.then(() => this.#beat(node, leaseMs))
    // The caller gets the error; the next beat only waits for the end.
    this.#lastBeat = beating.catch(() => undefined)
    return beating
  }

  async #beat(node: string, leaseMs: number): Promise<Beat> {
    const dueMs = Math.min(Math.max(leaseMs / 4, BEAT_MS_MIN), BEAT_MS_MAX)
    const answerMs = this.#isFirst ? BEAT_MS_MAX : dueMs
    if (leaseMs <= 0) {
      this.#beating.delete(node)
      await this.#database.queryLease(this.#sql.leave, [storedName(node)], BEAT_MS_MAX)
      return
    }
    const ms = Number.isFinite(leaseMs) ? leaseMs : null
    const values = [storedName(node), this.#url, this.#version, ms, this.#secret]
    const askedAt = performance.now()
    const [answer] = await this.#database.queryLease<{ now: number; lapsed: boolean | null }>(
      this.#sql.beat,
      values,
      answerMs,
    )
    this.#isFirst = false
    if (answer !== undefined) this.#database.time.set(answer.now, askedAt)
    this.#tidy()
    const isLapsed = answer?.lapsed ?? this.#beating.has(node)
    this.#beating.add(node)
    if (isLapsed) return 'lapsed'
  }

  /** No caller waits for it, and it may fail. */
  #tidy(): void {
    const now = performance.now()
    if (now - this.#tidiedAt < TIDY_MS || this.#database.isClosing) return
    this.#tidiedAt = now
    for (const sql of [this.#sql.unflag, this.#sql.forget]) {
      // The next time it is tried again.
      this.#database.query(sql).catch(() => undefined)
    }
  }

  now(): number {
    return this.#database.time.now()
  }

  /** Throws if a living node has another secret: requests could not be passed on. */
  async assertSameSecret(): Promise<void> {
    if (this.#secret === null) return
    const [other] = await this.#database.query<{ name: string; url: string | null }>(
      this.#sql.stranger,
      [this.#secret],
    )
    if (other === undefined) return
    throw new HoldfastError(
      'invalid_field',
      `the cluster secret is not that of node ${other.url ?? nameFrom(other.name)}: ` +
        'give every node the same one',
      { field: 'clusterSecret' },
    )
  }

  async urlOf(node: string): Promise<string | null> {
    const name = storedName(node)
    const [found] = await this.#database.rideOut(() =>
      this.#database.query<{ url: string | null }>(this.#sql.node, [name]),
    )
    return found?.url ?? null
  }

  async ownerOf(session: SessionRef): Promise<string | null> {
    const [sql, name] =
      'id' in session ? [this.#sql.ownerOfId, session.id] : [this.#sql.ownerOfKey, session.key]
    const [found] = await this.#database.rideOut(() =>
      this.#database.query<{ owner: string }>(sql, [storedName(name)]),
    )
    return found === undefined ? null : nameFrom(found.owner)
  }

  /** Not tried again: it is only reported. */
  async owned(node: string): Promise<number> {
    const name = storedName(node)
    const [found] = await this.#database.query<{ count: number }>(this.#sql.owned, [name])
    return found?.count ?? 0
  }

  async nodes(): Promise<readonly NodeRow[]> {
    const rows = await this.#database.rideOut(() => this.#database.query<NodeRow>(this.#sql.nodes))
    return rows.map((row) => ({ ...row, name: nameFrom(row.name) }))
  }
}
