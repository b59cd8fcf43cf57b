/**
 * Copies a store's file while a server uses it. The copy is one moment of the original: SQLite
 * reads it in a single transaction, beside the writer and without holding it up.
 */
import { closeSync, existsSync, openSync, rmSync } from 'node:fs'
import { readSqlite, type SqliteDatabase } from './driver.ts'
import { unavailable } from '../failures.ts'
import { DamageError } from './failures.ts'
import { checkMarker } from './marker.ts'

export type BackupOptions = { readonly file: string; readonly to: string }

/** Writes a checked copy of `file` to `to`, which must not exist. Blocks its thread meanwhile. */
export async function backupSqlite({ file, to }: BackupOptions): Promise<void> {
  checkThere(file)
  readSqlite(file, (database) => copyTo(database, to))
}

/** For tools that read the file as the last process left it, or while one uses it. */
export function checkThere(file: string): void {
  if (!existsSync(file)) throw unavailable(`there is no file ${file}`)
  checkMarker(file)
}

export function copyTo(database: SqliteDatabase, to: string): void {
  createTarget(to)
  try {
    database.prepare('VACUUM INTO ?').run(to)
    readSqlite(to, checkPages)
  } catch (thrown) {
    rmSync(to, { force: true })
    throw thrown
  }
}

/** Empty and private; making it is also what refuses a file that is there already. */
function createTarget(to: string): void {
  try {
    closeSync(openSync(to, 'wx', 0o600))
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException
    const reason = code === 'EEXIST' ? `${to} exists: a backup never overwrites a file` : message
    throw unavailable(reason)
  }
}

export function checkPages(database: SqliteDatabase): void {
  const { quick_check: found } = database.prepare('PRAGMA quick_check(1)').get()
  if (found !== 'ok') throw new DamageError(String(found))
}
