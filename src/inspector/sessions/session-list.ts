/**
 * The sessions that match the filters, read page by page, and kept up to date by the change feed.
 * A session that changes moves to the top, unless a reader has scrolled down: then it is counted,
 * and the list stays where it is.
 */
import { batch, computed, signal } from '@preact/signals'
import type { SessionRowView } from '../../wire/views.ts'
import { followChanges, type ChangedRow } from '../shared/feeds.ts'
import { api } from '../shared/server.ts'
import { listQuery, matches, type SessionFilters } from './filters.ts'

const PAGE_ROWS = 200

export class SessionList {
  readonly filters: SessionFilters
  readonly isReading = signal(false)
  readonly problem = signal('')
  /** Everything that matches was read. */
  readonly isWhole = signal(false)
  /** Changed sessions that are not in the list yet, because its reader has scrolled down. */
  readonly held = signal<ReadonlyMap<string, SessionRowView>>(new Map())
  readonly rows = computed(() => [...this.#rows.value.values()])
  readonly #rows = signal<ReadonlyMap<string, SessionRowView>>(new Map())
  #cursor: string | null = null
  /** The list in use: answers to what was asked before are dropped. */
  #generation = 0
  #isHeld = false
  readonly #stop: () => void

  constructor(filters: SessionFilters) {
    this.filters = filters
    this.#stop = followChanges({
      changed: (rows) => this.#changed(rows),
      restarted: () => void this.read(),
    })
    void this.read()
  }

  stop(): void {
    this.#generation += 1
    this.#stop()
  }

  /** Reads the list anew, from its beginning. */
  async read(): Promise<void> {
    this.#generation += 1
    this.isReading.value = false
    this.#cursor = null
    await this.#readPage(new Map())
  }

  async readMore(): Promise<void> {
    if (this.isReading.peek() || this.isWhole.peek()) return
    await this.#readPage(this.#rows.peek())
  }

  /** Whether changed sessions wait until they are asked for. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld
    if (!isHeld) this.release()
  }

  /** Puts what was held at the top. */
  release(): void {
    const held = this.held.peek()
    if (held.size === 0) return
    batch(() => {
      this.held.value = new Map()
      this.#putFirst([...held.values()])
    })
  }

  async #readPage(before: ReadonlyMap<string, SessionRowView>): Promise<void> {
    const generation = this.#generation
    this.isReading.value = true
    try {
      const query = listQuery(this.filters, this.#cursor, PAGE_ROWS)
      const page = await api.sessions(query)
      if (generation !== this.#generation) return
      const rows = new Map(before)
      for (const row of page.sessions) if (!rows.has(row.id)) rows.set(row.id, row)
      batch(() => {
        this.#cursor = page.nextCursor
        this.isWhole.value = page.nextCursor === null
        this.problem.value = ''
        this.#rows.value = rows
      })
    } catch (error) {
      if (generation === this.#generation) this.problem.value = (error as Error).message
    }
    if (generation === this.#generation) this.isReading.value = false
  }

  #changed(changed: readonly ChangedRow[]): void {
    const rows = new Map(this.#rows.peek())
    const held = new Map(this.held.peek())
    const first: SessionRowView[] = []
    for (const row of changed) {
      held.delete(row.id)
      if (!matches(row, this.filters)) rows.delete(row.id)
      else if (!this.#isHeld) first.push(row)
      else if (rows.has(row.id)) rows.set(row.id, row)
      else held.set(row.id, row)
    }
    batch(() => {
      this.#rows.value = rows
      this.held.value = held
      if (first.length > 0) this.#putFirst(first)
    })
  }

  #putFirst(changed: readonly SessionRowView[]): void {
    const rows = new Map(this.#rows.peek())
    for (const { id } of changed) rows.delete(id)
    const byTime = [...changed].sort((one, other) => other.updatedAt - one.updatedAt)
    this.#rows.value = new Map([...byTime.map((row) => [row.id, row] as const), ...rows])
  }
}
