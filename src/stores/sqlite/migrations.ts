/** Brings a file of an older version up to date: after a copy, in one transaction. */
import { existsSync } from 'node:fs'
import { keysInText } from '../../core/request-keys.ts'
import { unavailable } from '../failures.ts'
import { foldedKey, nameFrom, storedName } from '../names.ts'
import { checkSteps } from '../steps.ts'
import type { SqliteDatabase } from './driver.ts'
import { STEPS } from './schema.ts'

/** The step that makes the table of request keys. */
const KEYS_STEP = 2
/** The step that adds the column of folded keys. */
const FOLDED_STEP = 6

/** A file of an older schema, and where its copy goes before it is changed. */
export type Migration = { readonly from: number; readonly to: number; readonly backup: string }

/** What opening the file will change, or null. Throws if the file is not to be used. */
export function dueMigration(database: SqliteDatabase, file: string): Migration | null {
  const done = appliedSteps(database, file)
  checkSteps(done, STEPS, file)
  const [from, to] = [done.length, STEPS.length]
  return from === 0 || from === to ? null : { from, to, backup: freeName(file, from) }
}

const BACKUPS_MAX = 9

/** A copy of before is never overwritten: an operator may have gone back, and on from there. */
function freeName(file: string, from: number): string {
  for (let copy = 1; copy <= BACKUPS_MAX; copy += 1) {
    const name = `${file}.schema-${from}${copy === 1 ? '' : `-${copy}`}.backup`
    if (!existsSync(name)) return name
  }
  const reason = `has ${BACKUPS_MAX} backups already: move them away`
  throw unavailable(`${file} has to be brought up to date, and ${reason}`)
}

export function migrate(database: SqliteDatabase, file: string): void {
  database.exec('BEGIN IMMEDIATE')
  try {
    database.exec(`CREATE TABLE IF NOT EXISTS migrations (
      number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at TEXT NOT NULL
    )`)
    const { length: done } = appliedSteps(database, file)
    const applied = database.prepare('INSERT INTO migrations VALUES (?, ?, ?)')
    for (const [index, { sql, checksum }] of STEPS.entries()) {
      if (index < done) continue
      database.exec(sql)
      if (index + 1 === KEYS_STEP) fillRequestKeys(database)
      if (index + 1 === FOLDED_STEP) foldKeys(database)
      applied.run(index + 1, checksum, new Date().toISOString())
    }
    database.exec('COMMIT')
  } catch (thrown) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw thrown
  }
}

function appliedSteps(database: SqliteDatabase, file: string): readonly string[] {
  const tables = database.prepare('SELECT name FROM sqlite_schema').all()
  if (tables.length === 0) return []
  if (!tables.some(({ name }) => name === 'migrations')) {
    throw unavailable(`${file} is a database of another program`)
  }
  const rows = database.prepare('SELECT checksum FROM migrations ORDER BY number').all()
  return rows.map(({ checksum }) => checksum as string)
}

/** The keys of the logs that are there, of open sessions: nothing was indexed before. */
function fillRequestKeys(database: SqliteDatabase): void {
  const add = database.prepare(`INSERT OR REPLACE INTO request_keys
    (session, key, number, digest, turn, at) VALUES (?1, ?2,
      1 + coalesce((SELECT max(number) FROM request_keys WHERE session = ?1), 0), ?3, ?4, ?5)`)
  const events = database.prepare(`SELECT events.session, events.body
    FROM events JOIN sessions ON sessions.number = events.session
    WHERE sessions.state = 'open' AND events.body LIKE '%"keys":[{%' ORDER BY events.number`)
  for (const { session, body } of events.iterate()) {
    for (const { key, digest, turn, at } of keysInText(body)) {
      add.run(session, storedName(key), digest, turn, at)
    }
  }
}

/** In pages: a statement that is read does not see what is written meanwhile. */
function foldKeys(database: SqliteDatabase): void {
  const next = database.prepare(`SELECT number, key FROM sessions
    WHERE number > ? AND key IS NOT NULL ORDER BY number LIMIT 1000`)
  const fold = database.prepare('UPDATE sessions SET folded = ? WHERE number = ?')
  for (let last = 0; ;) {
    const page = next.all(last)
    if (page.length === 0) return
    for (const { number, key } of page) fold.run(foldedKey(nameFrom(key)), number)
    last = page.at(-1).number
  }
}
