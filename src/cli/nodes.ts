/** `holdfast nodes`: who is there, for how long its lease lasts, and how many sessions it owns. */
import type { NodeRow } from '../core/index.ts'
import { openPostgresStore } from '../stores/postgres/index.ts'
import { UsageError, type Command, type Values } from './command.ts'
import { isPostgres, storeName } from './store-flags.ts'

export const nodes: Command = {
  name: 'nodes',
  usage: 'nodes --store postgres://… [--json]',
  summary: 'Lists the nodes on a database: their leases, addresses and sessions.',
  flags: { store: { type: 'string' }, json: { type: 'boolean' } },
  help: [
    ['--store postgres://…', 'the database, as serve was given it'],
    ['--json', 'one JSON object per line, for programs'],
  ],
  run: listNodes,
}

async function listNodes(values: Values, words: readonly string[]): Promise<number> {
  if (words[0] !== undefined) throw new UsageError(`nodes takes no ${words[0]}: flags only`)
  const url = storeName(values)
  if (!isPostgres(url)) throw new UsageError('nodes needs --store postgres://…')
  const store = await openPostgresStore({ url, pool: 1, readOnly: true })
  try {
    const rows = await store.cluster.nodes()
    const lines = values['json'] === true ? rows.map(asJson) : table(rows)
    for (const line of lines) console.log(line)
    return 0
  } finally {
    await store.close()
  }
}

function asJson(row: NodeRow): string {
  return JSON.stringify({ ...row, startedAt: isoTime(row.startedAt) })
}

function isoTime(at: number): string {
  return new Date(at).toISOString()
}

function table(rows: readonly NodeRow[]): readonly string[] {
  if (rows.length === 0) return ['holdfast: no node is there']
  const cells = rows.map(({ name, url, version, startedAt, leaseMs, sessions }) => [
    name,
    url ?? '-',
    leaseMs > 0 ? `${(leaseMs / 1_000).toFixed(1)} s` : 'over',
    String(sessions),
    version,
    isoTime(startedAt),
  ])
  const all = [['NODE', 'ADDRESS', 'LEASE', 'SESSIONS', 'VERSION', 'STARTED'], ...cells]
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)))
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  )
}
