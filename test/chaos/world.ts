/**
 * Three nodes on one PostgreSQL, each with ways of its own to the database and from the others, and
 * all that can befall them.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { Random } from '../simulation/random.ts'
import { freePort, NodeProcess, ROOT } from '../support/node-process.ts'
import { PostgresServer } from '../support/postgres.ts'
import { Link, type CutMode } from './link.ts'

export type Bug = 'none' | 'no-fence' | 'no-lease' | 'no-doubt'

export type Fault = 'kill' | 'pause' | 'stop' | 'cut-database' | 'cut-peers' | 'restart-database'

export const LEASE_MS = 1_500
const NODES = 3

/** A place for a node: its ports stay, its process comes and goes. */
type Seat = {
  readonly port: number
  readonly toDatabase: Link
  readonly fromPeers: Link
  process: NodeProcess
}

export class World {
  readonly random: Random
  readonly faults: string[] = []
  readonly #folder: string
  readonly #database: PostgresServer
  readonly #bug: Bug
  readonly #secret = randomBytes(32).toString('hex')
  readonly #seats: Seat[] = []

  private constructor(database: PostgresServer, seed: number, bug: Bug) {
    this.random = new Random(seed)
    this.#database = database
    this.#bug = bug
    this.#folder = mkdtempSync(join(tmpdir(), 'holdfast-chaos-'))
    writeFileSync(this.#ticksFile, '')
  }

  static async create(seed: number, bug: Bug): Promise<World> {
    const world = new World(await PostgresServer.start(), seed, bug)
    for (let made = 0; made < NODES; made += 1) await world.#addSeat()
    return world
  }

  get #ticksFile(): string {
    return join(this.#folder, 'ticks')
  }

  async #addSeat(): Promise<void> {
    const port = await freePort()
    const toDatabase = await Link.to(Number(new URL(this.#database.url).port))
    const fromPeers = await Link.to(port)
    const ways = { port, toDatabase, fromPeers }
    this.#seats.push({ ...ways, process: await this.#startNode(ways) })
  }

  async #startNode(seat: Omit<Seat, 'process'>): Promise<NodeProcess> {
    const url = new URL(this.#database.url)
    url.port = String(seat.toDatabase.port)
    const settings = {
      url: url.href,
      advertise: `http://127.0.0.1:${seat.fromPeers.port}`,
      port: seat.port,
      leaseMs: LEASE_MS,
      secret: this.#secret,
      ticks: this.#ticksFile,
      bug: this.#bug,
    }
    return NodeProcess.start([JSON.stringify(settings)], [join(ROOT, 'test/chaos/node.mjs')])
  }

  /** Where any client may knock: also at a node that is down. */
  get urls(): readonly string[] {
    return this.#seats.map(({ port }) => `http://127.0.0.1:${port}`)
  }

  /** What the agents wrote, in order. */
  ticks(): readonly string[] {
    return readFileSync(this.#ticksFile, 'utf8').split('\n').slice(0, -1)
  }

  /** One thing goes wrong and is put right again. */
  async suffer(fault: Fault): Promise<void> {
    const seat = this.random.pick(this.#seats)
    const mode = this.random.pick<CutMode>(['reset', 'silence'])
    const ms = this.random.between(LEASE_MS, LEASE_MS * 3)
    this.faults.push(`${fault} of node ${this.#seats.indexOf(seat)} for ${ms} ms (${mode})`)
    switch (fault) {
      case 'kill':
      case 'stop':
        await (fault === 'kill' ? seat.process.kill() : seat.process.stop())
        await setTimeout(ms)
        seat.process = await this.#startNode(seat)
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
    for (const { process, toDatabase, fromPeers } of this.#seats) {
      process.resume()
      await process.kill()
      await Promise.all([toDatabase.close(), fromPeers.close()])
    }
    await this.#database.remove()
    rmSync(this.#folder, { recursive: true })
  }
}
