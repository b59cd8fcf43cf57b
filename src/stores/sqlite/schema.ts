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
import type { DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'

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
]

/** Brings the file to the latest schema, in one transaction, or refuses it. */
export function migrate(database: DatabaseSyncInstance, file: string): void {
  database.exec('BEGIN IMMEDIATE')
  try {
    const done = appliedSteps(database, file)
    checkSteps(done, file)
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
  if (tables.length > 0 && !tables.some(({ name }) => name === 'migrations')) {
    throw new HoldfastError('store_unavailable', `${file} is a database of another program`)
  }
  database.exec(`CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, checksum TEXT NOT NULL, applied_at TEXT NOT NULL
  )`)
  const rows = database.prepare('SELECT checksum FROM migrations ORDER BY number').all()
  return rows.map(({ checksum }) => checksum as string)
}

function checkSteps(done: readonly string[], file: string): void {
  if (done.length > STEPS.length) {
    throw new HoldfastError(
      'store_unavailable',
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
  database
    .prepare('INSERT INTO migrations VALUES (?, ?, ?)')
    .run(number, checksumOf(step), new Date().toISOString())
}

function checksumOf(step: string): string {
  return createHash('sha256').update(step).digest('hex')
}
