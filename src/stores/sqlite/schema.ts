/**
 * The tables, as numbered steps that only go forward. A step that was released never changes: its
 * checksum is stored, and a file whose steps are not exactly ours is refused, not guessed at.
 *
 * Layout: what a turn changes (seq, updated_at, pending, expires_at) is in no index but
 * `pending`'s, which holds only sessions with work. `due_at` stands in for `expires_at` in its
 * index: it is a lower bound that most turns need not touch. `log.ts` says why so few events are
 * indexed.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import type { DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'
import { fillRequestKeys } from './request-keys.ts'

const STEPS: readonly string[] = [
  `CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key TEXT,
    agent TEXT NOT NULL,
    internal INTEGER NOT NULL,
    labels TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    expires_at INTEGER,
    due_at INTEGER,
    closed_at INTEGER
  );
  CREATE UNIQUE INDEX sessions_by_open_key ON sessions (key)
    WHERE state = 'open' AND key IS NOT NULL;
  CREATE INDEX sessions_by_key ON sessions (key, number) WHERE key IS NOT NULL;
  CREATE INDEX sessions_open ON sessions (number) WHERE state = 'open' AND internal = 0;
  CREATE INDEX sessions_pending ON sessions (number) WHERE pending = 1;
  CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;
  CREATE INDEX sessions_closed ON sessions (closed_at) WHERE closed_at IS NOT NULL;
  CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    body TEXT NOT NULL
  );
  CREATE UNIQUE INDEX events_marked ON events (session, seq) WHERE seq % 64 = 0;
  CREATE TABLE snapshots (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL);
  CREATE TABLE labels (
    name TEXT NOT NULL, value TEXT NOT NULL, session INTEGER NOT NULL,
    PRIMARY KEY (name, value, session)
  ) WITHOUT ROWID;
  CREATE INDEX labels_by_session ON labels (session);`,
  // A checksum is the CRC-32 of the body; events of before have none. Keys are numbered within
  // their session, so that the oldest are found without counting.
  `ALTER TABLE events ADD COLUMN checksum INTEGER;
  CREATE TABLE request_keys (
    session INTEGER NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL,
    turn TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (session, key)
  ) WITHOUT ROWID;
  CREATE UNIQUE INDEX request_keys_by_number ON request_keys (session, number);`,
]

/** What a step takes over from the rows that are there, by its number. */
const FILLS: Readonly<Record<number, (database: DatabaseSyncInstance) => void>> = {
  2: fillRequestKeys,
}

/** A file of an older schema, and where its copy goes before it is changed. */
export type Migration = { readonly from: number; readonly to: number; readonly backup: string }

/** What opening the file will change, or null. Throws if the file is not to be used. */
export function dueMigration(database: DatabaseSyncInstance, file: string): Migration | null {
  const done = appliedSteps(database, file)
  checkSteps(done, file)
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
  throw new HoldfastError(
    'store_unavailable',
    `${file} has to be brought up to date, and has ${BACKUPS_MAX} backups already: move them away`,
  )
}

/** Brings the file to the latest schema, in one transaction, or refuses it. */
export function migrate(database: DatabaseSyncInstance, file: string): void {
  database.exec('BEGIN IMMEDIATE')
  try {
    database.exec(`CREATE TABLE IF NOT EXISTS migrations (
      number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at TEXT NOT NULL
    )`)
    const done = appliedSteps(database, file)
    for (let number = done.length + 1; number <= STEPS.length; number += 1) {
      applyStep(database, number)
    }
    database.exec('COMMIT')
  } catch (thrown) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw thrown
  }
}

function appliedSteps(database: DatabaseSyncInstance, file: string): readonly string[] {
  const tables = database.prepare('SELECT name FROM sqlite_schema').all()
  if (tables.length === 0) return []
  if (!tables.some(({ name }) => name === 'migrations')) {
    throw new HoldfastError('store_unavailable', `${file} is a database of another program`)
  }
  const rows = database.prepare('SELECT checksum FROM migrations ORDER BY number').all()
  return rows.map(({ checksum }) => checksum as string)
}

function checkSteps(done: readonly string[], file: string): void {
  if (done.length > STEPS.length) {
    throw new HoldfastError(
      'store_newer',
      `${file} was written by a newer Holdfast (schema ${done.length}, ` +
        `this one knows ${STEPS.length}): update Holdfast`,
    )
  }
  const changed = done.findIndex((checksum, index) => checksum !== checksumOf(STEPS[index]!))
  if (changed === -1) return
  throw new HoldfastError(
    'store_unavailable',
    `${file} has another schema than this Holdfast makes (step ${changed + 1} differs): ` +
      'use the Holdfast that wrote it',
  )
}

function applyStep(database: DatabaseSyncInstance, number: number): void {
  const step = STEPS[number - 1]!
  database.exec(step)
  FILLS[number]?.(database)
  database
    .prepare('INSERT INTO migrations VALUES (?, ?, ?)')
    .run(number, checksumOf(step), new Date().toISOString())
}

function checksumOf(step: string): string {
  return createHash('sha256').update(step).digest('hex')
}
