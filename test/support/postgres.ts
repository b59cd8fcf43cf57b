/**
 * A real PostgreSQL for a test: a server of its own in a folder of its own, thrown away afterwards.
 * With DATABASE_URL that one is used instead, in schemas that are dropped again.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { GUARDED, guarded } from './guarded.ts'
import { ROOT } from './repository.ts'
import { freePort } from './server-process.ts'

const TEMPLATES = `${ROOT}node_modules/.cache/holdfast-postgres`

export class PostgresServer {
  readonly url: string
  readonly #folder: string
  readonly #port: number
  #process: ChildProcess | null = null

  private constructor(folder: string, port: number) {
    this.#folder = folder
    this.#port = port
    this.url = `postgres://holdfast@127.0.0.1:${port}/postgres`
  }

  static async start(): Promise<PostgresServer> {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-postgres-'))
    const owner = unprivileged()
    if (owner !== null) chownSync(folder, owner.uid, owner.gid)
    makeCluster(folder, owner)
    const server = new PostgresServer(folder, await freePort())
    await server.up()
    return server
  }

  /** Starts it again after `stop` or `kill`. */
  async up(): Promise<void> {
    const settings = [
      ['listen_addresses', '127.0.0.1'],
      ['port', this.#port],
      ['unix_socket_directories', ''],
      ['max_connections', 100],
      ['shared_buffers', '32MB'],
    ].flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const data = join(this.#folder, 'data')
    const options = { cwd: this.#folder, ...unprivileged(), ...GUARDED }
    this.#process = guarded(
      spawn(program('postgres'), ['-D', data, ...settings], { stdio: 'ignore', ...options }),
    )
    await answers(this.url)
  }

  /** `SIGINT`: cuts all connections and shuts down; `SIGQUIT`: as if the machine had crashed. */
  async stop(signal: 'SIGINT' | 'SIGQUIT' = 'SIGINT'): Promise<void> {
    const child = this.#process
    this.#process = null
    if (child === null || child.exitCode !== null) return
    child.kill(signal)
    await once(child, 'exit')
  }

  async remove(): Promise<void> {
    await this.stop('SIGQUIT')
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

type Owner = ReturnType<typeof unprivileged>

/** Copies what `initdb` made the first time, which takes a third of the time. */
function makeCluster(folder: string, owner: Owner): void {
  const data = join(folder, 'data')
  const version = execFileSync(program('initdb'), ['--version'], { encoding: 'utf8' })
  const name = `${version.replaceAll(/[^\w.]+/g, '-')}${owner?.uid ?? process.getuid?.() ?? ''}`
  const template = join(TEMPLATES, name)
  if (existsSync(template)) {
    execFileSync('cp', ['-a', template, data])
    return
  }
  const options = ['--auth=trust', '--username=holdfast', '--encoding=UTF8', '--locale=C']
  execFileSync(program('initdb'), [...options, '--no-sync', '-D', data], {
    stdio: 'pipe',
    cwd: folder,
    ...owner,
  })
  mkdirSync(TEMPLATES, { recursive: true })
  const part = `${template}.${process.pid}`
  execFileSync('cp', ['-a', data, part])
  try {
    renameSync(part, template)
  } catch {
    // Another test file has made it meanwhile.
    rmSync(part, { recursive: true, force: true })
  }
}

export type TestDatabase = {
  /** A URL whose schema no other test uses. */
  freshUrl(): string
  /** Runs statements beside the store. */
  query(sql: string): Promise<any[]>
  /** The server, where it is ours and may be stopped. */
  readonly server: PostgresServer | null
  close(): Promise<void>
}

export async function openTestDatabase(): Promise<TestDatabase> {
  const given = process.env['DATABASE_URL']
  const server = given === undefined ? await PostgresServer.start() : null
  const base = given ?? server!.url
  const schemas: string[] = []
  const query = (sql: string): Promise<any[]> => queryOnce(base, sql)
  return {
    server,
    query,
    freshUrl: () => {
      const schema = `test_${randomBytes(6).toString('hex')}`
      schemas.push(schema)
      const url = new URL(base)
      url.searchParams.set('schema', schema)
      return url.href
    },
    close: async () => {
      if (server !== null) return server.remove()
      for (const schema of schemas) await query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
    },
  }
}

/** What a released version had stored (`test/fixtures`), in a schema of its own. */
export async function loadDump(database: TestDatabase, version: string): Promise<string> {
  const url = database.freshUrl()
  const file = join(ROOT, 'test/fixtures', version, 'holdfast.sql')
  const text = await readFile(file, 'utf8')
  const sql = text.replaceAll(/(?<=SCHEMA )holdfast\b|\bholdfast(?=\.)/g, schemaOf(url))
  await database.query(sql.replaceAll(/"holdfast"(?=\.)/g, schemaOf(url)))
  return url
}

/** The name of the schema in a URL of `freshUrl`. */
export function schemaOf(url: string): string {
  return new URL(url).searchParams.get('schema') ?? ''
}

async function queryOnce(url: string, sql: string): Promise<any[]> {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  try {
    const { rows } = await client.query(sql)
    return rows
  } finally {
    await client.end()
  }
}

async function answers(url: string): Promise<void> {
  for (let attempt = 0; attempt < 600; attempt += 1) {
    const isUp = await queryOnce(url, 'SELECT 1').then(
      () => true,
      () => false,
    )
    if (isUp) return
    await setTimeout(50)
  }
  throw new Error('PostgreSQL does not start')
}

/** The server's programs: in the configured folder, or where Debian keeps them. */
function program(name: string): string {
  const given = process.env['POSTGRES_PROGRAMS']
  if (given !== undefined) return join(given, name)
  const debian = '/usr/lib/postgresql'
  const versions = existsSync(debian) ? readdirSync(debian) : []
  const folders = versions
    .toSorted((one, other) => Number(other) - Number(one))
    .map((version) => join(debian, version, 'bin'))
  const paths = [...folders, ...(process.env['PATH'] ?? '').split(':')]
  const found = paths.map((folder) => join(folder, name)).find((path) => existsSync(path))
  if (found === undefined) throw new Error(`there is no ${name}: install PostgreSQL`)
  return found
}

/** PostgreSQL refuses to run as root: then as its own user, or as the user `nobody`. */
export function unprivileged(): { uid: number; gid: number } | null {
  if (process.getuid?.() !== 0) return null
  for (const user of ['postgres', 'nobody']) {
    try {
      const id = (flag: string): number =>
        Number(execFileSync('id', [flag, user], { stdio: ['ignore', 'pipe', 'ignore'] }))
      return { uid: id('-u'), gid: id('-g') }
    } catch {
      // The next one, then.
    }
  }
  throw new Error('PostgreSQL needs a user that is not root')
}
