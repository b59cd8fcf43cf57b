/**
 * Copies a store's file while a server uses it. The copy is one moment of the original: SQLite
 * reads it in a single transaction, beside the writer and without holding it up.
 */
import { closeSync, existsSync, openSync, rmSync } from 'node:fs'
import { openSqliteToRead, type SqliteDatabase } from './driver.ts'
import { HoldfastError } from '../../core/errors.ts'
import { checkPages } from './database.ts'
import { storeError } from './failures.ts'
import { checkMarker } from './marker.ts'

export type BackupOptions = { readonly file: string; readonly to: string }

/** Writes a checked copy of `file` to `to`, which must not exist. Blocks its thread meanwhile. */
export async function backupSqlite({ file, to }: BackupOptions): Promise<void> {
  if (!existsSync(file)) throw new HoldfastError('store_unavailable', `there is no file ${file}`)
  checkMarker(file)
  createTarget(to)
  try {
    withDatabase(file, (database) => database.prepare('VACUUM INTO ?').run(to))
    withDatabase(to, checkPages)
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
    throw new HoldfastError('store_unavailable', reason)
  }
}

function withDatabase(file: string, use: (database: SqliteDatabase) => void): void {
  let database: SqliteDatabase | undefined
  try {
    database = openSqliteToRead(file)
    use(database)
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}
