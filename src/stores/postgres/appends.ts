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
import { bytesOf } from '../rows.ts'
import type { Database } from './database.ts'
import { storeError } from './failures.ts'

/** JSON holds no control character: what stands between two bodies is in neither. */
const BETWEEN_BODIES = '\u0001'

type Outcomes = readonly AppendOutcome[]

export async function appendAll(database: Database, appends: readonly Append[]): Promise<Outcomes> {
  const outcomes = new Map<Append, AppendOutcome>()
  for (const round of roundsOf(appends)) {
    const some = await appendRound(database, round)
    round.forEach((append, index) => outcomes.set(append, some[index] ?? 'stale'))
  }
  return appends.map((append) => outcomes.get(append) ?? 'stale')
}

/** If one append is at fault, each is run alone, so that the others succeed. */
async function appendRound(database: Database, round: readonly Append[]): Promise<Outcomes> {
  try {
    return await database.rideOut((isAgain) => extend(database, round, isAgain))
  } catch (thrown) {
    const error = storeError(thrown)
    if (error.code !== 'internal' || round.length === 1) throw error
    const alone = await Promise.allSettled(round.map((append) => appendRound(database, [append])))
    const failed = alone.find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
    return alone.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
  }
}

async function extend(database: Database, round: readonly Append[], isAgain: boolean) {
  const more = round.some(({ shares, asks, blobs }) => (shares ?? asks ?? blobs) !== undefined)
  const rows = await (more
    ? database.run<{ place: number }>('appendMore', [
        ...valuesOf(round),
        ...sharesOf(round),
        ...asksOf(round),
        ...blobsOf(round),
      ])
    : database.run<{ place: number }>('append', valuesOf(round)))
  const appended = new Set(rows.map(({ place }) => place))
  if (isAgain && appended.size < round.length) {
    const ids = round.map(({ session }) => storedName(session))
    const found = await database.run<{ id: string; epoch: number; seq: number }>('positions', [ids])
    const positions = new Map(found.map((row) => [row.id, row]))
    round.forEach(({ epoch, after, events }, index) => {
      const position = positions.get(ids[index]!)
      const isThere = position?.epoch === epoch && position.seq >= after + events.length
      if (isThere) appended.add(index + 1)
    })
  }
  return round.map((_, index): AppendOutcome => (appended.has(index + 1) ? 'appended' : 'stale'))
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
  // All nodes lock rows in the same order. A session is in a round once.
  return rounds.map((round) =>
    round.toSorted((one, other) => (one.session < other.session ? -1 : 1)),
  )
}

type Bodies = readonly [places: number[], seqs: number[], bodies: string[]]

/** Written out here: the driver would look at, and mostly escape, every element of every array. */
function valuesOf(round: readonly Append[]): unknown[] {
  const events: Bodies = [[], [], []]
  const snapshots: Bodies = [[], [], []]
  round.forEach(({ after, events: bodies, snapshot }, index) => {
    bodies.forEach((body, offset) => add(events, index + 1, after + offset + 1, body))
    if (snapshot !== null) add(snapshots, index + 1, after + bodies.length, snapshot)
  })
  const keys = round.flatMap((append, index) =>
    (append.keys?.added ?? []).map((key) => ({ ...key, place: index + 1 })),
  )
  const bounds = round.flatMap((append) => append.keys ?? [])
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
    arrayOf(events[2], (body) => crc32(body)),
    events[2].join(BETWEEN_BODIES),
    `{${snapshots[0].join(',')}}`,
    `{${snapshots[1].join(',')}}`,
    snapshots[2].join(BETWEEN_BODIES),
    arrayOf(keys, ({ place }) => place),
    arrayOf(keys, ({ key }) => quoted(storedName(key))),
    arrayOf(keys, ({ digest }) => quoted(digest)),
    arrayOf(keys, ({ turn }) => quoted(turn)),
    arrayOf(keys, ({ at }) => at),
    Math.min(...bounds.map(({ since }) => since), Number.MAX_SAFE_INTEGER),
    Math.max(...bounds.map(({ max }) => max), 0),
    arrayOf(round, (append) => bytesOf(append.events)),
    arrayOf(round, ({ attached }) => attached ?? 0),
  ]
}

/** The places, the sessions, the shares and those that they name. */
function sharesOf(round: readonly Append[]): readonly unknown[] {
  const shared = round.flatMap(({ session, shares }, index) =>
    shares === undefined ? [] : [{ place: index + 1, session, shares }],
  )
  return [
    shared.map(({ place }) => place),
    shared.map(({ session }) => storedName(session)),
    shared.map(({ shares }) => JSON.stringify(shares)),
    shared.map(({ shares }) => JSON.stringify(shares.map((share) => storedName(share.with)))),
  ]
}

/** The places, the sessions, and the blobs that events name. */
function blobsOf(round: readonly Append[]): readonly unknown[] {
  const naming = round.flatMap(({ session, blobs }, index) =>
    blobs === undefined ? [] : [{ place: index + 1, session, blobs }],
  )
  return [
    naming.map(({ place }) => place),
    naming.map(({ session }) => storedName(session)),
    naming.map(({ blobs }) => JSON.stringify(blobs)),
  ]
}

/** The places, the sessions, the times, and the asks that were opened and settled. */
function asksOf(round: readonly Append[]): readonly unknown[] {
  const asking = round.flatMap(({ session, at, asks }, index) =>
    asks === undefined ? [] : [{ place: index + 1, session, at, ...asks }],
  )
  return [
    asking.map(({ place }) => place),
    asking.map(({ session }) => storedName(session)),
    asking.map(({ at }) => at),
    asking.map(({ opened }) =>
      JSON.stringify(opened.map((ask) => ({ ...ask, kind: storedName(ask.kind) }))),
    ),
    asking.map(({ settled }) => JSON.stringify(settled)),
  ]
}

function add([places, seqs, bodies]: Bodies, place: number, seq: number, body: string): void {
  places.push(place)
  seqs.push(seq)
  bodies.push(body)
}

function arrayOf<Item>(items: readonly Item[], element: (item: Item) => unknown): string {
  return `{${items.map(element).join(',')}}`
}

function quoted(text: string): string {
  return `"${text.replaceAll(/[\\"]/g, '\\$&')}"`
}
