/**
 * The physical limit of the in-process measurements: a bare loop of group commits on SQLite, WAL and
 * synchronous FULL, that writes the rows of a turn and nothing else. Every key starts a turn in one
 * commit and ends it in the next; with one key, the end of a turn and the start of the next share one.
 */
import { openSqlite } from '../src/stores/sqlite/driver.ts'
import { percentile, type Load } from './measure.ts'

const SCHEMA = `
  PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
  CREATE TABLE sessions (n INTEGER PRIMARY KEY, id TEXT UNIQUE, epoch INT, seq INT, at INT);
  CREATE TABLE events (session INT, seq INT, body TEXT);
  CREATE UNIQUE INDEX events_seq ON events (session, seq);`

export function bareSqlite(file: string, keys: number, seconds: number): Load {
  const database = openSqlite(file)
  database.exec(SCHEMA)
  const create = database.prepare('INSERT INTO sessions VALUES (?, ?, 1, 0, 0)')
  for (let key = 0; key < keys; key += 1) create.run(key, `session-${key}`)
  const fence = database.prepare(
    'UPDATE sessions SET seq = ?, at = ? WHERE id = ? AND epoch = 1 AND seq = ?',
  )
  const insert = database.prepare('INSERT INTO events VALUES (?, ?, ?)')
  const seqs = Array.from({ length: keys }, () => 0)
  const body = (type: string, seq: number): string =>
    JSON.stringify({ type, turn: `t${seq}`, text: 'hello, is anybody there?', seq, at: Date.now() })
  const append = (key: number, types: readonly string[]): void => {
    const seq = seqs[key] ?? 0
    fence.run(seq + types.length, Date.now(), `session-${key}`, seq)
    types.forEach((type, index) => insert.run(key, seq + index + 1, body(type, seq + index + 1)))
    seqs[key] = seq + types.length
  }
  const commit = (types: readonly string[]): void => {
    database.exec('BEGIN IMMEDIATE')
    for (let key = 0; key < keys; key += 1) append(key, types)
    database.exec('COMMIT')
  }
  const load = rounds(keys, seconds, () => {
    if (keys === 1) return commit(['message.added', 'turn.done', 'turn.started'])
    commit(['turn.started'])
    commit(['message.added', 'turn.done'])
  })
  database.close()
  return load
}

function rounds(keys: number, seconds: number, round: () => void): Load {
  const latencies: number[] = []
  const begin = performance.now()
  for (let at = begin; at < begin + seconds * 1_000;) {
    round()
    const now = performance.now()
    latencies.push(now - at)
    at = now
  }
  const taken = (performance.now() - begin) / 1_000
  const sorted = latencies.toSorted((a, b) => a - b)
  return { turns: latencies.length * keys, seconds: taken, latencies: sorted }
}

export const medianRoundMs = (load: Load): number => percentile(load.latencies, 0.5)
