/**
 * What a user would build on DBOS: a durable workflow for each turn, with one step, on PostgreSQL.
 * DBOS does not serialize the workflows of a key by itself when it starts them directly, and its
 * queues poll: a chain of promises for each key does it here, in the only process.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { openTestDatabase } from '../test/support/postgres.ts'
import { loadPeer } from './peers.ts'

type Dbos = {
  setConfig(config: object): void
  launch(): Promise<void>
  registerWorkflow<Run>(run: Run, options: object): Run
  runStep<Result>(step: () => Promise<Result>, options: object): Promise<Result>
}

const { DBOS } = loadPeer('@dbos-inc/dbos-sdk') as { DBOS: Dbos }
const database = await openTestDatabase()
await database.query('CREATE DATABASE dbos_bench')
const systemDatabaseUrl = databaseUrl(database.freshUrl())
DBOS.setConfig({ name: 'bench', systemDatabaseUrl, logLevel: 'error' })
const turn = DBOS.registerWorkflow(
  async (_key: string, input: string) => DBOS.runStep(async () => input, { name: 'echo' }),
  { name: 'turn' },
)
await DBOS.launch()
process.once('disconnect', () => void database.close().finally(() => process.exit()))

function databaseUrl(text: string): string {
  const url = new URL(text)
  url.pathname = '/dbos_bench'
  url.search = ''
  return url.href
}

const lanes = new Map<string, Promise<unknown>>()

function inLane(key: string, input: string): Promise<string> {
  const before = lanes.get(key) ?? Promise.resolve()
  const own = before.then(() => turn(key, input))
  const settled = own.catch(() => undefined)
  lanes.set(key, settled)
  return own
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const { input } = JSON.parse(Buffer.concat(chunks).toString()) as { input: string }
    inLane(request.url ?? '', input).then(
      (text) =>
        response.setHeader('content-type', 'application/json').end(JSON.stringify({ text })),
      (error: unknown) => response.writeHead(500).end(String(error)),
    )
  })
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
