/** The store of a command: its flags, and the commands on the store itself. */
import { randomUUID } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { openPostgresStore } from '../stores/postgres/index.ts'
import { backupSqlite } from '../stores/sqlite/index.ts'
import { defineCommand, text, toggle, UsageError } from './command.ts'
import { isoTime, printJson, printTable, say } from './output.ts'

type StoreValues = { readonly data: string | null; readonly store: string | null }

export const DEFAULT_FOLDER = './.holdfast'

/** The store's name, as `openHoldfast` takes it. */
export function storeName({ data, store }: StoreValues): string {
  if (store === null) return `sqlite:${join(data ?? DEFAULT_FOLDER, 'holdfast.db')}`
  if (data !== null) throw new UsageError('--data and --store exclude each other')
  if (store === 'memory:' || /^sqlite:./.test(store) || isPostgres(store)) return store
  throw new UsageError(`--store must be memory:, sqlite:FILE or postgres://…, not ${store}`)
}

export const isPostgres = (store: string): boolean => /^postgres(ql)?:\/\/./.test(store)

/** The working folders of agents: beside the store's file, or temporary for `memory:`. */
export function agentsFolder(store: string): string {
  if (store === 'memory:') return join(tmpdir(), `holdfast-${randomUUID()}`)
  if (!store.startsWith('sqlite:')) return resolve('.holdfast', 'agents')
  return resolve(dirname(store.slice('sqlite:'.length)), 'agents')
}

/** The files and folders of the server's own that nobody else may read. */
export function storePaths({ data, store }: StoreValues): readonly string[] {
  if (store === null) return [data ?? DEFAULT_FOLDER, join(data ?? DEFAULT_FOLDER, 'holdfast.db')]
  return store.startsWith('sqlite:') ? [store.slice('sqlite:'.length)] : []
}

export function storeFile(values: StoreValues): string {
  const name = storeName(values)
  if (name === 'memory:') throw new UsageError('--store memory: has no file')
  if (isPostgres(name)) {
    throw new UsageError('PostgreSQL has no file: use its own pg_dump, or its backups')
  }
  return name.slice('sqlite:'.length)
}

export const backup = defineCommand({
  name: 'backup',
  operands: { usage: 'FILE', takes: 'one FILE', min: 1, max: 1 },
  summary: 'Copies the store to FILE, which must not exist. The server may run meanwhile.',
  flags: {
    data: text('DIR', 'the folder of the store, as for serve').showing(DEFAULT_FOLDER),
    store: text('sqlite:FILE', 'instead of --data: the file of the store'),
  },
  async run(values, [to = '']) {
    const file = storeFile(values)
    await backupSqlite({ file, to })
    const { size } = await stat(to)
    say(`copied ${file} to ${to} (${size} bytes)`)
  },
})

export const nodes = defineCommand({
  name: 'nodes',
  summary: 'Lists the nodes on a PostgreSQL: their leases, addresses and open sessions.',
  flags: {
    store: text('postgres://…', 'the database, as for serve').required(),
    json: toggle('one JSON object per line, for programs'),
  },
  async run({ store, json }) {
    if (!isPostgres(store)) throw new UsageError('nodes needs --store postgres://…')
    const rows = await readNodes(store)
    if (json) printJson(rows)
    else if (rows.length === 0) say('there are no nodes')
    else {
      printTable(rows, {
        NODE: ({ name }) => name,
        ADDRESS: ({ url }) => url,
        LEASE: ({ leaseMs }) => (leaseMs > 0 ? `${(leaseMs / 1_000).toFixed(1)} s` : 'over'),
        SESSIONS: ({ sessions }) => sessions,
        VERSION: ({ version }) => version,
        STARTED: ({ startedAt }) => startedAt,
      })
    }
  },
})

async function readNodes(url: string) {
  const store = await openPostgresStore({ url, pool: 1, readOnly: true })
  try {
    const rows = await store.cluster.nodes()
    return rows.map((row) => ({ ...row, startedAt: isoTime(row.startedAt) }))
  } finally {
    await store.close()
  }
}
