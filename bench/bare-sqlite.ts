/**
 * The physical limit of the in-process measurements: a bare loop of group commits on SQLite, WAL and
 * synchronous FULL, that writes the rows of a turn and nothing else. Every key starts a turn in one
 * commit and ends it in the next; with one key, the end of a turn and the start of the next share one.
 */
import { openSqlite } from '../src/stores/sqlite/driver.ts'
import type { Load } from './measure.ts'

const SCHEMA = `
  PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
  CREATE TABLE sessions (n INTEGER PRIMARY KEY, id TEXT UNIQUE, epoch INT, seq INT, at INT);
  CREATE TABLE events (session INT, seq INT, body TEXT);
  CREATE UNIQUE INDEX events_seq ON events (session, seq);`

type Statement = ReturnType<ReturnType<typeof openSqlite>['prepare']>

/** The rows of keys and of their events. */
export class BareLog {
  readonly #database: ReturnType<typeof openSqlite>
  readonly #create: Statement
  readonly #fence: Statement
  readonly #insert: Statement
  readonly #sessions = new Map<string, { readonly number: number; seq: number }>()

  constructor(file: string) {
    this.#database = openSqlite(file)
    this.#database.exec(SCHEMA)
    this.#create = this.#database.prepare('INSERT INTO sessions VALUES (?, ?, 1, 0, 0)')
    this.#fence = this.#database.prepare(
      'UPDATE sessions SET seq = ?, at = ? WHERE id = ? AND epoch = 1 AND seq = ?',
    )
    this.#insert = this.#database.prepare('INSERT INTO events VALUES (?, ?, ?)')
  }

  /** Events of these types for each of the keys, in one synced commit. */
  commit(keys: Iterable<string>, types: readonly string[]): void {
    this.#database.exec('BEGIN IMMEDIATE')
    for (const key of keys) this.#append(key, types)
    this.#database.exec('COMMIT')
  }

  #append(key: string, types: readonly string[]): void {
    const session = this.#session(key)
    const { seq, number } = session
    this.#fence.run(seq + types.length, Date.now(), key, seq)
    types.forEach((type, index) => {
      const at = seq + index + 1
      this.#insert.run(number, at, body(type, at))
    })
    session.seq += types.length
  }

  #session(key: string) {
    const known = this.#sessions.get(key)
    if (known !== undefined) return known
    const session = { number: this.#sessions.size, seq: 0 }
    this.#create.run(session.number, key)
    this.#sessions.set(key, session)
    return session
  }

  close(): void {
    this.#database.close()
  }
}

function body(type: string, seq: number): string {
  const text = 'hello, is anybody there?'
  return JSON.stringify({ type, turn: `t${seq}`, text, seq, at: Date.now() })
}

export function bareSqlite(file: string, keys: number, seconds: number): Load {
  const log = new BareLog(file)
  const names = Array.from({ length: keys }, (_, key) => `session-${key}`)
  const load = rounds(keys, seconds, () => {
    if (keys === 1) return log.commit(names, ['message.added', 'turn.done', 'turn.started'])
    log.commit(names, ['turn.started'])
    log.commit(names, ['message.added', 'turn.done'])
  })
  log.close()
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
