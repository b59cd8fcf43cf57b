/**
 * The nodes that live: one row each, a lease on the database's clock. Beats go out one after the
 * other, so that none that was late can undo the last one.
 */
import { HoldfastError } from '../../core/errors.ts'
import type { Beat, Cluster, NodeCounts, NodeRow, SessionRef } from '../../core/store.ts'
import { nameFrom, storedName } from '../names.ts'
import type { Database } from './database.ts'

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
  readonly #self: NodeFacts
  #lastBeat: Promise<unknown> = Promise.resolve()
  /** Nodes that must have a row: if it is missing, others took the node for dead. */
  readonly #beating = new Set<string>()
  #tidiedAt = Number.NEGATIVE_INFINITY

  constructor(database: Database, self: NodeFacts) {
    this.#database = database
    this.#self = self
  }

  beat(node: string, leaseMs: number): Promise<Beat> {
    const beating = this.#lastBeat.then(() => this.#beat(node, leaseMs))
    // The caller gets the error; the next beat only waits for the end.
    this.#lastBeat = beating.catch(() => undefined)
    return beating
  }

  async #beat(node: string, leaseMs: number): Promise<Beat> {
    if (leaseMs <= 0) {
      this.#beating.delete(node)
      await this.#database.run('leave', [storedName(node)], BEAT_MS_MAX)
      return
    }
    // The first beat has to connect too, and nothing hangs on its lease yet.
    const isFirst = !this.#beating.has(node)
    const dueMs = isFirst ? BEAT_MS_MAX : Math.min(Math.max(leaseMs / 4, BEAT_MS_MIN), BEAT_MS_MAX)
    const { url, version, secret } = this.#self
    const ms = Number.isFinite(leaseMs) ? leaseMs : null
    const askedAt = performance.now()
    const [answer] = await this.#database.run<{ now: number; lapsed: boolean | null }>(
      'beat',
      [storedName(node), url, version, ms, secret],
      dueMs,
    )
    if (answer !== undefined) this.#database.setTime(answer.now, askedAt)
    this.#tidy()
    const isLapsed = answer?.lapsed ?? !isFirst
    this.#beating.add(node)
    if (isLapsed) return 'lapsed'
  }

  /** No caller waits for it, and it may fail. */
  #tidy(): void {
    const now = performance.now()
    if (now - this.#tidiedAt < TIDY_MS) return
    this.#tidiedAt = now
    for (const name of ['unflag', 'forget', 'forgetAnswerers'] as const) {
      // The next time it is tried again.
      this.#database.run(name).catch(() => undefined)
    }
  }

  now(): number {
    return this.#database.now()
  }

  /** Throws if a living node has another secret: requests could not be passed on. */
  async assertSameSecret(): Promise<void> {
    const { secret } = this.#self
    if (secret === null) return
    const [other] = await this.#database.run<Pick<NodeRow, 'name' | 'url'>>('stranger', [secret])
    if (other === undefined) return
    throw new HoldfastError(
      'invalid_field',
      `the cluster secret is not that of node ${other.url ?? nameFrom(other.name)}: ` +
        'give every node the same one',
      { field: 'clusterSecret' },
    )
  }

  async urlOf(node: string): Promise<string | null> {
    const [found] = await this.#database.ask<Pick<NodeRow, 'url'>>('node', [storedName(node)])
    return found?.url ?? null
  }

  async ownerOf(session: SessionRef): Promise<string | null> {
    const [statement, ...names] =
      'id' in session
        ? (['ownerOfId', session.id] as const)
        : (['ownerOfKey', session.key, session.principal] as const)
    const [found] = await this.#database.ask<{ owner: string }>(statement, names.map(storedName))
    return found === undefined ? null : nameFrom(found.owner)
  }

  /** Not tried again: it is only reported. */
  async owned(node: string): Promise<number> {
    const [found] = await this.#database.run<{ count: number }>('owned', [storedName(node)])
    return found?.count ?? 0
  }

  async nodes(): Promise<readonly NodeRow[]> {
    const rows = await this.#database.ask<NodeRow>('nodes')
    return rows.map((row) => ({ ...row, name: nameFrom(row.name) }))
  }

  /** Not tried again: the next exchange comes soon. */
  async exchangeCounts(node: string, counts: NodeCounts | null): Promise<readonly NodeCounts[]> {
    const text = counts === null ? null : JSON.stringify(counts)
    const values = [storedName(node), text]
    const rows = await this.#database.run<{ counts: string }>('exchangeCounts', values)
    return rows.map(({ counts: others }) => JSON.parse(others) as NodeCounts)
  }

  async announceAnswerers(node: string, body: string, ms: number): Promise<void> {
    await this.#database.run('announceAnswerers', [storedName(node), body, ms])
  }

  async answerersBut(node: string): Promise<readonly string[]> {
    const rows = await this.#database.ask<{ body: string }>('answerersBut', [storedName(node)])
    return rows.map(({ body }) => body)
  }
}
