/** `holdfast nodes`: the nodes on a PostgreSQL. */
import { openPostgresStore } from '../stores/postgres/index.ts'
import { defineCommand, NO_OPERANDS } from './command.ts'
import { required, text, toggle, UsageError } from './flags.ts'
import { printJson, printTable, say } from './output.ts'
import { isPostgres } from './store-flags.ts'

export const nodes = defineCommand({
  name: 'nodes',
  operands: NO_OPERANDS,
  summary: 'Lists the nodes on a PostgreSQL: their leases, addresses and open sessions.',
  flags: {
    store: required(text('postgres://…', 'the database, as for serve')),
    json: toggle('one JSON object per line, for programs'),
  },
  async run({ store, json }) {
    if (!isPostgres(store)) throw new UsageError('nodes needs --store postgres://…')
    const rows = await readNodes(store)
    if (json) printJson(rows)
    else if (rows.length === 0) say('there are no nodes')
    else {
      const cells = rows.map(({ name, url, version, startedAt, leaseMs, sessions }) => [
        name,
        url ?? '-',
        leaseMs > 0 ? `${(leaseMs / 1_000).toFixed(1)} s` : 'over',
        String(sessions),
        version,
        startedAt,
      ])
      printTable([['NODE', 'ADDRESS', 'LEASE', 'SESSIONS', 'VERSION', 'STARTED'], ...cells])
    }
    return 0
  },
})

async function readNodes(url: string) {
  const store = await openPostgresStore({ url, pool: 1, readOnly: true })
  try {
    const rows = await store.cluster.nodes()
    return rows.map((row) => ({ ...row, startedAt: new Date(row.startedAt).toISOString() }))
  } finally {
    await store.close()
  }
}
