/**
 * Appends of many sessions in one statement, which is one transaction and one sync.
 *
 * I4: when the answer to a statement is lost, what became of it is found out, never guessed: the
 * same appends are sent again, those that were carried out match no row, and a row that stands
 * under our epoch at or past our last event says so. One append of a session is under way at a
 * time, so nothing else can have moved it there.
 */
import { crc32 } from 'node:zlib'
import type { Append, AppendOutcome } from '../../core/store.ts'
import { storedName } from '../names.ts'
import type { Database } from './database.ts'
import { storeError } from './failures.ts'
import type { Statements } from './statements.ts'

/** JSON holds no control character: what stands between two bodies is in neither. */
const BETWEEN_BODIES = '\u0001'

type LogPosition = { readonly epoch: number; readonly seq: number }

export class Appends {
  readonly #database: Database
  readonly #sql: Statements

  constructor(database: Database, sql: Statements) {
    this.#database = database
    this.#sql = sql
  }

  async append(appends: readonly Append[]): Promise<readonly AppendOutcome[]> {
    const outcomes = new Map<Append, AppendOutcome>()
    for (const round of roundsOf(appends)) {
      const some = await this.#appendRound(round)
      round.forEach((append, index) => outcomes.set(append, some[index] ?? 'stale'))
    }
    return appends.map((append) => outcomes.get(append) ?? 'stale')
  }

  /** If one append is at fault, each is run alone, so that the others succeed. */
  async #appendRound(round: readonly Append[]): Promise<readonly AppendOutcome[]> {
    try {
      return await this.#database.rideOut((isAgain) => this.#extend(round, isAgain))
    } catch (thrown) {
      const error = storeError(thrown)
      if (error.code !== 'internal' || round.length === 1) throw error
      const alone = await Promise.allSettled(round.map((append) => this.#appendRound([append])))
      const failed = alone.find(({ status }) => status === 'rejected')
      if (failed?.status === 'rejected') throw failed.reason
      return alone.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
    }
  }

  async #extend(round: readonly Append[], isAgain: boolean): Promise<readonly AppendOutcome[]> {
    const rows = await this.#database.query<{ place: number }>(this.#sql.append, valuesOf(round))
    const places = new Set(rows.map(({ place }) => place))
    const outcomes = round.map((_, index) => (places.has(index + 1) ? 'appended' : 'stale'))
    if (!isAgain || rows.length === round.length) return outcomes
    return this.#findOut(round, outcomes)
  }

  async #findOut(
    round: readonly Append[],
    outcomes: readonly AppendOutcome[],
  ): Promise<readonly AppendOutcome[]> {
    const ids = round.map(({ session }) => storedName(session))
    const rows = await this.#database.query<LogPosition & { id: string }>(this.#sql.positions, [
      ids,
    ])
    const positions = new Map(rows.map((row) => [row.id, row]))
    return round.map(({ session, epoch, after, events }, index) => {
      const position = positions.get(storedName(session))
      const isThere = position?.epoch === epoch && position.seq >= after + events.length
      return isThere ? 'appended' : (outcomes[index] ?? 'stale')
    })
  }
}

/** A statement changes a row once: a session's second append goes into a second statement. */
function roundsOf(appends: readonly Append[]): readonly (readonly Append[])[] {
  const rounds: Append[][] = []
  const seen = new Map<string, number>()
  for (const append of appends) {
    const round = seen.get(append.session) ?? 0
    seen.set(append.session, round + 1)
    const some = (rounds[round] ??= [])
    some.push(append)
  }
  // All nodes lock rows in the same order.
  return rounds.map((round) => round.toSorted(bySession))
}

function bySession(one: Append, other: Append): number {
  if (one.session === other.session) return 0
  return one.session < other.session ? -1 : 1
}

/** Written out here: the driver would look at, and mostly escape, every element of every array. */
function valuesOf(round: readonly Append[]): unknown[] {
  const events: [number[], number[], string[]] = [[], [], []]
  const snapshots: [number[], number[], string[]] = [[], [], []]
  round.forEach(({ after, events: bodies, snapshot }, index) => {
    bodies.forEach((body, offset) => add(events, index + 1, after + offset + 1, body))
    if (snapshot !== null) add(snapshots, index + 1, after + bodies.length, snapshot)
  })
  return [
    arrayOf(round, ({ session }) => quoted(storedName(session))),
    arrayOf(round, ({ epoch }) => epoch),
    arrayOf(round, ({ after }) => after),
    arrayOf(round, (append) => append.events.length),
    arrayOf(round, ({ at }) => at),
    arrayOf(round, ({ closed }) => closed),
    arrayOf(round, ({ pending }) => pending),
    arrayOf(round, ({ expiresAt }) => expiresAt ?? 'NULL'),
    arrayOf(round, ({ status }) => status ?? 'NULL'),
    arrayOf(round, ({ queuedTurns }) => queuedTurns ?? 0),
    `{${events[0].join(',')}}`,
    `{${events[1].join(',')}}`,
    `{${events[2].map((body) => crc32(body)).join(',')}}`,
    events[2].join(BETWEEN_BODIES),
    ...columnsOf(snapshots),
    ...keyColumns(round),
  ]
}

function keyColumns(round: readonly Append[]): unknown[] {
  const rows = round.flatMap(({ keys }, index) =>
    (keys?.added ?? []).map((key) => ({ ...key, place: index + 1 })),
  )
  const bounds = round.flatMap(({ keys }) => keys ?? [])
  return [
    `{${rows.map(({ place }) => place).join(',')}}`,
    `{${rows.map(({ key }) => quoted(storedName(key))).join(',')}}`,
    `{${rows.map(({ digest }) => quoted(digest)).join(',')}}`,
    `{${rows.map(({ turn }) => quoted(turn)).join(',')}}`,
    `{${rows.map(({ at }) => at).join(',')}}`,
    Math.min(...bounds.map(({ since }) => since), Number.MAX_SAFE_INTEGER),
    Math.max(...bounds.map(({ max }) => max), 0),
  ]
}

function add(columns: [number[], number[], string[]], place: number, seq: number, body: string) {
  columns[0].push(place)
  columns[1].push(seq)
  columns[2].push(body)
}

function columnsOf([places, seqs, bodies]: [number[], number[], string[]]): string[] {
  return [`{${places.join(',')}}`, `{${seqs.join(',')}}`, bodies.join(BETWEEN_BODIES)]
}

function arrayOf(
  round: readonly Append[],
  element: (append: Append) => string | number | boolean,
): string {
  return `{${round.map(element).join(',')}}`
}

function quoted(text: string): string {
  return `"${text.replaceAll(/[\\"]/g, '\\$&')}"`
}
