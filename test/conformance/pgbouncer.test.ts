/**
 * PostgreSQL behind PgBouncer keeps the contract of `Store`: with connections of one's own
 * (`session`), and with connections that change hands after every transaction (`transaction`),
 * where what a connection was told before is somebody else's.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openPostgresStore } from 'holdfast/postgres'
import { storeConformance } from 'holdfast/testing'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { GUARDED, guarded } from '../support/guarded.ts'
import { serve } from '../support/server.ts'
import { until } from '../support/gate.ts'
import { freePort } from '../support/server-process.ts'
import { openTestDatabase, schemaOf, unprivileged, type TestDatabase } from '../support/postgres.ts'

/** Another one may be named, to try it by hand. */
const PROGRAM = process.env['PGBOUNCER'] ?? '/usr/sbin/pgbouncer'
const isGiven = process.env['DATABASE_URL'] !== undefined
const isTried = existsSync(PROGRAM) && !isGiven
if (!isTried) {
  const why = isGiven ? 'DATABASE_URL names a database' : `there is no ${PROGRAM}`
  console.warn(`${why}: the tests with PgBouncer are skipped`)
}

class PgBouncer {
  readonly #folder: string
  readonly #process: ChildProcess
  readonly #port: number

  private constructor(folder: string, port: number) {
    this.#folder = folder
    this.#port = port
    const options = { ...unprivileged(), ...GUARDED }
    this.#process = guarded(
      spawn(PROGRAM, [join(folder, 'pgbouncer.ini')], { stdio: 'ignore', ...options }),
    )
  }

  static async start(to: string, settings: string): Promise<PgBouncer> {
    const { hostname, port: postgresPort } = new URL(to)
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-pgbouncer-'))
    const owner = unprivileged()
    if (owner !== null) chownSync(folder, owner.uid, owner.gid)
    const port = await freePort()
    const lines = [
      `[databases]\npostgres = host=${hostname} port=${postgresPort} user=holdfast`,
      `[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = ${port}\nunix_socket_dir =`,
      `auth_type = any\n${settings}\n`,
    ]
    writeFileSync(join(folder, 'pgbouncer.ini'), lines.join('\n'))
    const bouncer = new PgBouncer(folder, port)
    await until(async () => {
      expect(bouncer.#process.exitCode).toBeNull()
      return bouncer.#answers(bouncer.through(to))
    })
    return bouncer
  }

  async #answers(url: string): Promise<boolean> {
    const client = new pg.Client(url)
    client.on('error', () => undefined)
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    )
  }

  /** The same database, by way of this. */
  through(url: string): string {
    const way = new URL(url)
    way.port = String(this.#port)
    return way.href
  }

  async close(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.kill('SIGKILL')) {
      await once(this.#process, 'exit')
    }
    rmSync(this.#folder, { recursive: true })
  }
}

const MODES: Readonly<Record<string, string>> = {
  session: 'pool_mode = session\ndefault_pool_size = 30',
  // Few connections for many clients, so that they do change hands.
  transaction: 'pool_mode = transaction\ndefault_pool_size = 3',
}

for (const [mode, settings] of Object.entries(MODES)) {
  describe.runIf(isTried)(`in ${mode} mode`, () => {
    let database: TestDatabase
    let bouncer: PgBouncer
    let url: string

    beforeAll(async () => {
      database = await openTestDatabase()
      bouncer = await PgBouncer.start(database.server!.url, settings)
      url = bouncer.through(database.freshUrl())
    })
    afterAll(async () => {
      await bouncer.close()
      await database.close()
    })

    const open = async () => ({
      store: await openPostgresStore({ url }),
      dispose: async () => {
        const tables = [
          'sessions',
          'events',
          'snapshots',
          'labels',
          'shares',
          'audit',
          'nodes',
          'request_keys',
          'asks',
          'blobs',
          'webhooks',
          'spending',
        ]
        const names = tables.map((table) => `${schemaOf(url)}.${table}`)
        await database.query(`TRUNCATE ${names.join(', ')} RESTART IDENTITY`)
      },
    })
    // What holds where connections change hands holds where they do not.
    const cases = mode === 'transaction' ? storeConformance(open) : []
    for (const { title, run } of cases) test(title, run)

    test('many start at once on an empty database, and none reads or writes another’s', async () => {
      const urls = [database.freshUrl(), database.freshUrl()].map((one) => bouncer.through(one))
      const nodes = await Promise.all(
        [0, 1, 0, 1].map((n) => serve({ store: urls[n]!, isNode: true })),
      )
      try {
        const turns = Array.from({ length: 80 }, async (_, n) => {
          const path = `/v1/keys/key-${n % 5}/turns`
          const { status, body } = await nodes[n % 4]!.call('POST', path, {
            body: { input: `${n}` },
          })
          return [status, body.turn?.reply?.text]
        })
        expect(await Promise.all(turns)).toEqual(turns.map((_, n) => [200, `${n}`]))
        for (const one of urls) {
          const rows = await database.query(`SELECT key FROM ${schemaOf(one)}.sessions`)
          expect(rows).toHaveLength(5)
        }
      } finally {
        await Promise.all(nodes.map((node) => node.close()))
      }
    })
  })
}
