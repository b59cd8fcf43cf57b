/** The store: `--store`, or a file in the folder `--data`. */
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { UsageError } from './flags.ts'

type StoreValues = { readonly data: string | null; readonly store: string | null }

export const DEFAULT_FOLDER = './.holdfast'

/** The store's name, as `openHoldfast` takes it. */
export function storeName({ data, store }: StoreValues): string {
  if (store === null) return `sqlite:${join(data ?? DEFAULT_FOLDER, 'holdfast.db')}`
  if (data !== null) throw new UsageError('--data and --store exclude each other')
  if (store === 'memory:' || /^sqlite:./.test(store) || isPostgres(store)) return store
  throw new UsageError(`--store must be memory:, sqlite:FILE or postgres://…, not ${store}`)
}

export function isPostgres(store: string): boolean {
  return /^postgres(ql)?:\/\/./.test(store)
}

/** The working folders of agents: beside the store's file, or temporary for `memory:`. */
export function agentsFolder(store: string): string {
  if (store === 'memory:') return join(tmpdir(), `holdfast-${randomUUID()}`)
  if (!store.startsWith('sqlite:')) return resolve('.holdfast', 'agents')
  return resolve(dirname(store.slice('sqlite:'.length)), 'agents')
}

/** The file of a SQLite store. */
export function storeFile(values: StoreValues): string {
  const name = storeName(values)
  if (name === 'memory:') throw new UsageError('--store memory: has no file')
  if (isPostgres(name)) {
    throw new UsageError('PostgreSQL has no file: use its own pg_dump, or its backups')
  }
  return name.slice('sqlite:'.length)
}
