/**
 * Nodes on one PostgreSQL, each with ways of its own to the database and from the others, and all
 * that can befall them.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import { Random } from '../simulation/random.ts'
import { ROOT } from '../support/repository.ts'
import { freePort, ServerProcess } from '../support/server-process.ts'
import { PostgresServer } from '../support/postgres.ts'
import { Link, type CutMode } from './link.ts'
import type { Testimony } from './witness.ts'

/** A guard that is taken away: see `planted.mjs`. */
export const BUGS = ['none', 'no-fence', 'no-epoch', 'no-lease', 'steal', 'no-doubt'] as const
export type Bug = (typeof BUGS)[number]

export const FAULTS = [
  'kill',
  'pause',
  'cut-database',
  'cut-peers',
  'restart-database',
  'stop',
] as const
export type Fault = (typeof FAULTS)[number]

/** A fifth of it is the time to stop in, also on a busy machine. */
export const LEASE_MS = 2_500
const RESTARTS_MAX = 5

export type WorldOptions = {
  readonly seed: number
  readonly bug: Bug
  readonly nodes: number
  /** A database to share with other worlds; without one it gets its own, which can be restarted. */
  readonly shared?: PostgresServer
}

/** A place for a node: its ports stay, its process comes and goes. */
export type Seat = {
  readonly port: number
  readonly url: string
  readonly toDatabase: Link
  readonly fromPeers: Link
  process: ServerProcess
}

export class World {
  readonly random: Random
  readonly faults: string[] = []
  readonly seats: Seat[] = []
  readonly #folder: string
  readonly #database: PostgresServer
  readonly #isShared: boolean
  readonly #bug: Bug
  readonly #schema = `chaos_${randomBytes(6).toString('hex')}`
  readonly #secret = randomBytes(32).toString('hex')

  private constructor(database: PostgresServer, { seed, bug, shared }: WorldOptions) {
    this.random = new Random(seed)
    this.#database = database
    this.#isShared = shared !== undefined
    this.#bug = bug
    this.#folder = mkdtempSync(join(tmpdir(), 'holdfast-chaos-'))
    writeFileSync(this.#witness, '')
  }

  static async create(options: WorldOptions): Promise<World> {
    const database = options.shared ?? (await PostgresServer.start())
    const world = new World(database, options)
    try {
      const seats = Array.from({ length: options.nodes }, () => world.#newSeat())
      // All of them: one that cannot start must not leave the others behind.
      for (const made of await Promise.allSettled(seats)) {
        if (made.status === 'fulfilled') world.seats.push(made.value)
      }
      await Promise.all(seats)
      return world
    } catch (thrown) {
      await world.close()
      throw thrown
    }
  }

  get #witness(): string {
    return join(this.#folder, 'witness')
  }

  async #newSeat(): Promise<Seat> {
    const port = await freePort()
    const toDatabase = await Link.to(Number(new URL(this.#database.url).port))
    const ways = { port, toDatabase, fromPeers: await Link.to(port) }
    const url = `http://127.0.0.1:${port}`
    return { ...ways, url, process: await this.#startNode(ways) }
  }

  async #startNode(seat: Pick<Seat, 'port' | 'toDatabase' | 'fromPeers'>): Promise<ServerProcess> {
    const url = new URL(this.#database.url)
    url.port = String(seat.toDatabase.port)
    const settings = {
      url: url.href,
      schema: this.#schema,
      advertise: `http://127.0.0.1:${seat.fromPeers.port}`,
      port: seat.port,
      leaseMs: LEASE_MS,
      secret: this.#secret,
      witness: this.#witness,
      bug: this.#bug,
    }
    return ServerProcess.start({
      program: join(ROOT, 'test/chaos/node.mjs'),
      flags: [JSON.stringify(settings)],
    })
  }

  /** As a supervisor does, until it is up: on a busy machine the database may answer too late. */
  async #restartNode(seat: Seat): Promise<ServerProcess> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#startNode(seat)
      } catch (thrown) {
        if (attempt === RESTARTS_MAX) throw thrown
      }
    }
  }

  /** Where any client may knock: also at a node that is down. */
  get urls(): readonly string[] {
    return this.seats.map(({ url }) => url)
  }

  testimony(): readonly Testimony[] {
    const lines = readFileSync(this.#witness, 'utf8').split('\n').slice(0, -1)
    return lines.map((line) => JSON.parse(line) as Testimony)
  }

  /** How often the session was claimed, as the database has it. */
  async epochOf(session: string): Promise<number> {
    const client = new pg.Client(this.#database.url)
    await client.connect()
    try {
      const sql = `SELECT owner_epoch AS epoch FROM ${this.#schema}.sessions WHERE id = $1`
      const { rows } = await client.query<{ epoch: string }>(sql, [session])
      return Number(rows[0]?.epoch)
    } finally {
      await client.end()
    }
  }

  /** One thing goes wrong and is put right again. */
  async suffer(fault: Fault): Promise<void> {
    const seat = this.random.pick(this.seats)
    const mode = this.random.pick<CutMode>(['reset', 'silence', 'late'])
    const ms = this.random.between(LEASE_MS, LEASE_MS * 2)
    this.faults.push(`${fault} of node ${this.seats.indexOf(seat)} for ${ms} ms (${mode})`)
    switch (fault) {
      case 'kill':
      case 'stop':
        await (fault === 'kill' ? seat.process.kill() : seat.process.stop())
        await setTimeout(ms)
        seat.process = await this.#restartNode(seat)
        return
      case 'pause':
        seat.process.pause()
        await setTimeout(ms)
        return seat.process.resume()
      case 'cut-database':
      case 'cut-peers': {
        const link = fault === 'cut-peers' ? seat.fromPeers : seat.toDatabase
        link.cut(mode)
        await setTimeout(ms)
        return link.heal()
      }
      case 'restart-database':
        await this.#database.stop(mode === 'reset' ? 'SIGINT' : 'SIGQUIT')
        return this.#database.up()
    }
  }

  async close(): Promise<void> {
    await Promise.all(
      this.seats.map(async ({ process, toDatabase, fromPeers }) => {
        process.resume()
        await process.kill()
        await Promise.all([toDatabase.close(), fromPeers.close()])
      }),
    )
    if (!this.#isShared) await this.#database.remove()
    rmSync(this.#folder, { recursive: true })
  }
}
