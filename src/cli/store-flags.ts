/** Where the store is: `--store`, or a file in the folder `--data`. */
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { textFlag, UsageError, type Flags, type Values } from './command.ts'

export const STORE_FLAGS: Flags = { data: { type: 'string' }, store: { type: 'string' } }

const DEFAULT_FOLDER = './.holdfast'

/** The store's name, as `openHoldfast` takes it. */
export function storeName(values: Values): string {
  const data = textFlag(values, 'data')
  const store = textFlag(values, 'store')
  if (store === null) return `sqlite:${join(data ?? DEFAULT_FOLDER, 'holdfast.db')}`
  if (data !== null) throw new UsageError('--data and --store exclude each other')
  if (store === 'memory:' || /^sqlite:./.test(store) || isPostgres(store)) return store
  throw new UsageError(`--store must be memory:, sqlite:FILE or postgres://…, not ${store}`)
}

/** Many nodes may share it. */
export function isPostgres(store: string): boolean {
  return /^postgres(ql)?:\/\/./.test(store)
}

/** Where agents work: beside the store's file. A store that forgets has one that may go. */
export function agentsFolder(store: string): string {
  if (store === 'memory:') return join(tmpdir(), `holdfast-${randomUUID()}`)
  if (!store.startsWith('sqlite:')) return resolve('.holdfast', 'agents')
  return resolve(dirname(store.slice('sqlite:'.length)), 'agents')
}

/** The file of a store, for what works on files only. */
export function storeFile(values: Values): string {
  const name = storeName(values)
  if (name === 'memory:') throw new UsageError('--store memory: has no file')
  if (isPostgres(name)) {
    throw new UsageError('PostgreSQL has no file: use its own pg_dump, or its backups')
  }
  return name.slice('sqlite:'.length)
}
