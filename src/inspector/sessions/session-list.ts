/**
 * The sessions that match the filters, read page by page, and kept up to date by the change feed. A
 * row that changes moves to its place, unless a reader has scrolled down: then it changes where it
 * is, what would come in is counted, and nothing moves.
 */
import { batch, signal } from '@preact/signals'
import type { SessionListView, SessionRowView } from '../../wire/views.ts'
import { followChanges, type ChangedRow } from '../shared/feeds.ts'
import { api } from '../shared/server.ts'
import { compareRows, listQuery, matches, type SessionFilters } from './filters.ts'

/** The first page is what a window shows; the others are read ahead. */
const FIRST_ROWS = 60
const PAGE_ROWS = 500
/** A filter that few match gives short pages: they are read on until there are so many rows. */
const ENOUGH_ROWS = 50
/** Between two countings, while sessions change. */
const COUNT_MS = 1_000

type Row = SessionRowView

export class SessionList {
  readonly filters: SessionFilters
  readonly isReading = signal(false)
  readonly problem = signal('')
  /** Everything that matches was read. */
  readonly isWhole = signal(false)
  /** How many match; null: not known yet. */
  readonly count = signal<SessionListView['count'] | null>(null)
  /** Changed sessions that are not at their places, because the reader has scrolled down. */
  readonly held = signal<ReadonlyMap<string, Row>>(new Map())
  readonly rows = signal<readonly Row[]>([])
  readonly #byId = new Map<string, Row>()
  /** What changed while a page was on its way, which may not know of it. */
  readonly #fresh = new Map<string, ChangedRow>()
  #cursor: string | null = null
  /** The list in use: answers to what was asked before are dropped. */
  #generation = 0
  #isHeld = false
  #countTimer: ReturnType<typeof setTimeout> | undefined
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
    clearTimeout(this.#countTimer)
    this.#stop()
  }

  /** Reads the list anew, from its beginning; what is shown stays until then. */
  async read(): Promise<void> {
    this.#generation += 1
    this.isReading.value = false
    this.#cursor = null
    await this.#readRows(FIRST_ROWS)
  }

  async readMore(): Promise<void> {
    if (this.isReading.peek() || this.isWhole.peek()) return
    await this.#readRows(PAGE_ROWS)
  }

  /** Whether changed sessions wait until they are asked for. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld
    if (!isHeld) this.release()
  }

  /** Puts what was held at its place. */
  release(): void {
    const held = this.held.peek()
    if (held.size === 0) return
    batch(() => {
      this.held.value = new Map()
      this.#place([...held.values()])
    })
  }

  async #readRows(limit: number): Promise<void> {
    const generation = this.#generation
    this.isReading.value = true
    try {
      for (let found = 0; found < ENOUGH_ROWS;) {
        this.#fresh.clear()
        const page = await this.#page(limit)
        if (generation !== this.#generation) return
        found += page.sessions.length
        this.#add(page)
        if (page.nextCursor === null) break
      }
      this.problem.value = ''
    } catch (error) {
      if (generation === this.#generation) this.problem.value = (error as Error).message
    }
    if (generation === this.#generation) this.isReading.value = false
  }

  #page(limit: number): Promise<SessionListView> {
    return api.sessions([
      ...listQuery(this.filters),
      ['limit', String(limit)],
      this.#cursor === null ? ['count', 'true'] : ['cursor', this.#cursor],
    ])
  }

  #add({ sessions, nextCursor, count }: SessionListView): void {
    const rows: Row[] = []
    const isFirst = this.#cursor === null
    if (isFirst) this.#byId.clear()
    const before = isFirst ? [] : this.rows.peek()
    for (const read of sessions) {
      const fresh = this.#fresh.get(read.id)
      const row = fresh === undefined || fresh.seq < read.seq ? read : fresh
      if (this.#byId.has(row.id) || !matches(row, this.filters)) continue
      this.#byId.set(row.id, row)
      rows.push(row)
    }
    batch(() => {
      if (count !== undefined) this.count.value = count
      this.#cursor = nextCursor
      this.isWhole.value = nextCursor === null
      if (isFirst || rows.length > 0) this.rows.value = [...before, ...rows]
    })
  }

  #changed(changed: readonly ChangedRow[]): void {
    const held = new Map(this.held.peek())
    const rows = [...this.rows.peek()]
    const moved: Row[] = []
    let isOther = false
    for (const row of changed) {
      if (this.isReading.peek()) this.#fresh.set(row.id, row)
      const known = this.#byId.get(row.id)
      held.delete(row.id)
      if (!matches(row, this.filters)) {
        if (known !== undefined) rows.splice(rows.indexOf(known), 1)
        this.#byId.delete(row.id)
        isOther ||= known !== undefined
      } else if (!this.#isHeld) moved.push(row)
      else {
        if (known !== undefined) {
          rows[rows.indexOf(known)] = row
          this.#byId.set(row.id, row)
        }
        held.set(row.id, row)
      }
    }
    batch(() => {
      this.rows.value = rows
      this.held.value = held
      if (moved.length > 0) this.#place(moved)
    })
    if (isOther || moved.length > 0 || held.size > 0) this.#countSoon()
  }

  /** Each at its place; one that belongs behind what was read is read later. */
  #place(moved: readonly Row[]): void {
    const ids = new Set(moved.map(({ id }) => id))
    const rows = this.rows.peek().filter(({ id }) => !ids.has(id))
    for (const row of moved) {
      const index = placeOf(row, rows, this.filters)
      const isRead = index < rows.length || this.isWhole.peek()
      if (isRead) {
        rows.splice(index, 0, row)
        this.#byId.set(row.id, row)
      } else this.#byId.delete(row.id)
    }
    this.rows.value = rows
  }

  #countSoon(): void {
    this.#countTimer ??= setTimeout(() => {
      this.#countTimer = undefined
      void this.#countAgain()
    }, COUNT_MS)
  }

  async #countAgain(): Promise<void> {
    const generation = this.#generation
    try {
      const { count } = await api.sessions([
        ...listQuery(this.filters),
        ['limit', '1'],
        ['count', 'true'],
      ])
      if (generation === this.#generation) this.count.value = count ?? null
    } catch {
      // It is counted again with the next change, and the feed says what is wrong.
    }
  }
}

/** Where a row belongs among rows in order: before those that are the same. */
function placeOf(row: Row, rows: readonly Row[], filters: SessionFilters): number {
  let [from, to] = [0, rows.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (compareRows(rows[middle]!, row, filters) < 0) from = middle + 1
    else to = middle
  }
  return from
}
