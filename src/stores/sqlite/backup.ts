/**
 * Copies a store's file while a server uses it. The copy is one moment of the original: SQLite reads
 * it in a single transaction, beside the writer and without holding it up.
 */
import { existsSync } from 'node:fs'
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite'
import { HoldfastError } from '../../core/errors.ts'
import { storeError } from './failures.ts'

export type BackupOptions = { readonly file: string; readonly to: string }

/** Writes a checked copy of `file` to `to`, which must not exist. Blocks its thread meanwhile. */
export async function backupSqlite({ file, to }: BackupOptions): Promise<void> {
  if (!existsSync(file)) throw new HoldfastError('store_unavailable', `there is no file ${file}`)
  if (existsSync(to)) {
    throw new HoldfastError('store_unavailable', `${to} exists: a backup never overwrites a file`)
  }
  withDatabase(file, (database) => database.prepare('VACUUM INTO ?').run(to))
  withDatabase(to, checkCopy)
}

function withDatabase(file: string, use: (database: DatabaseSyncInstance) => void): void {
  let database: DatabaseSyncInstance | undefined
  try {
    database = new DatabaseSync(file, { readOnly: true, timeout: 5_000 })
    use(database)
  } catch (thrown) {
    throw storeError(thrown, file)
  } finally {
    database?.close()
  }
}

function checkCopy(database: DatabaseSyncInstance): void {
  const { quick_check: found } = database.prepare('PRAGMA quick_check(1)').get()
  if (found !== 'ok') throw Object.assign(new Error(String(found)), { errcode: 11 })
}
