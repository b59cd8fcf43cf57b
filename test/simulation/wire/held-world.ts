/**
 * A world with held connections: programs that send numbered messages to a browser and get numbered
 * ones back, over sockets that are lost, late, doubled or half-open. Programs stand still, crash or
 * leave; the server crashes or is stopped, and its browser with it. Then all heals.
 */
import type { ReconnectPolicy, Runner } from '../../../src/core/index.ts'
import type { HeldConnection } from '../../../src/cdp/connection.ts'
import { functionRunner } from '../../../src/runners/function.ts'
import { openAttachments } from '../checker.ts'
import { History } from '../history.ts'
import { Process } from '../process.ts'
import { Random } from '../random.ts'
import { FINE, SharedStore } from '../store.ts'
import { Timeline } from '../timeline.ts'
import { withoutStacks } from '../world.ts'
import { HeldServer } from './held-server.ts'
import { MISHAPS, Network } from './network.ts'
import type { WireWorldOptions } from './world.ts'

const LIMITS = { sweepMs: 4_000, leaseMs: 4_000, idleSessionsMax: 1, pageEvents: 3 }
const CLIENTS_MAX = 4
const HEAL_MS_MAX = 120_000
/** What programs and the browser do, and how often. */
const WISHES = { open: 6, send: 30, emit: 25, close: 2, crash: 2, sleep: 4, drop: 6 } as const

/** Sessions have an agent; here nobody asks it anything. */
const IDLE: Runner = functionRunner(async () => '')

export async function runHeldWorld(options: WireWorldOptions): Promise<History> {
  const world = new HeldWorld(options)
  await withoutStacks(
    (reason) => world.noteUnhandled(reason),
    () => world.run(),
  )
  return world.history
}

/** One program with one connection. */
class Program {
  readonly name: string
  readonly process: Process
  readonly kind: { readonly reconnect: ReconnectPolicy; readonly graceMs: number }
  state = 'connecting'
  attachment: string | null = null
  sent = 0
  told = 0
  connection: HeldConnection | null = null
  isClosed = false

  constructor(name: string, process: Process, kind: Program['kind']) {
    this.name = name
    this.process = process
    this.kind = kind
  }

  get isGone(): boolean {
    return this.state === 'over' || this.process.state === 'dead'
  }
}

class HeldWorld {
  readonly history: History
  readonly #options: WireWorldOptions
  readonly #timeline = new Timeline()
  readonly #random: Random
  readonly #network: Network
  readonly #store: SharedStore
  readonly #programs: Program[] = []
  readonly #heldBytesMax: number
  readonly #times: number
  #server: HeldServer | null = null
  #servers = 0
  #isHealed = false

  constructor(options: WireWorldOptions) {
    const random = new Random(options.seed * 2 + 7)
    this.#options = options
    this.#random = random
    this.#times = options.size === 'large' ? 2 : 1
    this.history = new History(options.seed, false, () => this.#timeline.now)
    const { modules } = options
    const shared = { modules, timeline: this.#timeline, random, history: this.history }
    this.#network = new Network({ ...shared, server: () => this.#listening() })
    const crash = (process: Process): void => this.#crash(process)
    const nothing = (): void => undefined
    this.#store = new SharedStore({ ...shared, crashPoint: null, crash, freeze: nothing })
    this.#heldBytesMax = random.chance(0.2) ? 1_000 : 1_000_000
  }

  noteUnhandled(reason: unknown): void {
    this.history.record({ type: 'unhandled', message: String(reason) })
  }

  async run(): Promise<void> {
    const random = this.#random
    const lastsMs = this.#times * random.between(8_000, 25_000)
    this.#start()
    this.#plan(this.#times * random.between(15, 50), lastsMs, () => this.#wish())
    this.#plan(this.#times * random.between(0, 10), lastsMs, () => this.#mishap())
    this.#plan(random.weighted({ no: 3, one: 1 }) === 'no' ? 0 : 1, lastsMs, () => this.#fail())
    this.#network.foul = random.pick([0, 0, 0.1])
    this.#store.weather = { ...FINE, slow: random.pick([0, 0, 0.1]) }
    await this.#timeline.advance(lastsMs)
    this.#heal()
    await this.#until('messages do not arrive', () => this.#unrest())
    for (const program of this.#programs) {
      if (random.chance(0.5)) this.#close(program)
      else this.#die(program)
    }
    await this.#until('something is left', () => this.#left())
    this.#lookAtServer()
    this.history.record({ type: 'world.quiet' })
    void this.#server?.stop(0)
    await this.#timeline.advance(this.#timeline.now + 40_000)
  }

  #plan(count: number, lastsMs: number, happen: () => void): void {
    for (let left = count; left > 0; left -= 1) {
      this.#timeline.after(this.#random.between(50, lastsMs), happen)
    }
  }

  #listening(): HeldServer | null {
    return this.#server?.isListening === true ? this.#server : null
  }

  #start(): void {
    this.#servers += 1
    const [random, store, history] = [this.#random, this.#store, this.history]
    const process = new Process(`node${this.#servers}`, this.#timeline, random)
    const server = new HeldServer({
      ...{
        process,
        modules: this.#options.modules,
        store,
        runners: { main: IDLE },
        limits: LIMITS,
      },
      ...{ random, history, heldBytesMax: this.#heldBytesMax },
      kindOf: (client) => {
        const found = this.#programs.find(({ name }) => name === client)
        return found?.kind ?? { reconnect: 'none', graceMs: 0 }
      },
    })
    this.#server = server
    server.start().catch(() => this.#crash(process))
  }

  #wish(): void {
    const random = this.#random
    const wish = random.weighted(WISHES)
    const present = this.#programs.filter((program) => !program.isGone)
    if (wish === 'emit') return this.#emit()
    if (present.length === 0 || (wish === 'open' && present.length < CLIENTS_MAX)) {
      return void this.#open()
    }
    const program = random.pick(present)
    switch (wish) {
      case 'open':
      case 'send':
        for (let left = random.between(1, 12); left > 0; left -= 1) this.#send(program)
        return
      case 'close':
        return this.#close(program)
      case 'crash':
        return this.#die(program)
      case 'sleep':
        this.#network.pause(program.process)
        program.process.freeze()
        this.#timeline.after(random.between(300, 9_000), () => program.process.thaw())
        return
      case 'drop':
        this.#mishapOf(program.name)
    }
  }

  async #open(): Promise<void> {
    const random = this.#random
    const name = `program${this.#programs.length + 1}`
    const process = new Process(name, this.#timeline, random)
    const weights = { reopen: 5, resume: 6, early: 1, none: 1 } as const
    const kind = {
      reconnect: random.weighted(weights),
      graceMs: random.pick([2_000, 8_000, 20_000]),
    }
    const program = new Program(name, process, kind)
    this.#programs.push(program)
    this.history.record({ type: 'held.begun', client: name, reconnect: kind.reconnect })
    const onState = (state: string): void => this.#noteState(program, state)
    const { HeldConnection: Held } = this.#options.modules
    const network = this.#network
    const opening = Held.open(
      'http://holdfast.test/cdp/a',
      { onState },
      {
        // Called with `new`, it is the socket that counts.
        webSocket: function open() {
          return network.open(name, process)
        } as never,
        clock: process.clock,
        random: () => random.next(),
        defer: (run) => void process.after(0, run),
      },
    )
    try {
      const connection = await opening
      program.connection = connection
      connection.onMessage = (text) => this.#noteTold(program, text)
    } catch {
      // It could not connect: its state says so.
    }
  }

  #noteState(program: Program, state: string): void {
    if (program.process.state === 'dead') return
    program.state = state
    this.history.record({ type: 'held.state', client: program.name, state })
    if (state !== 'over' || program.isClosed) return
    program.process.after(1, () => this.#lookAt(program))
  }

  #lookAt({ name, process: { timers } }: Program): void {
    const sockets = this.#network.socketsOf(name)
    this.history.record({ type: 'held.over', client: name, timers, sockets })
  }

  #noteTold(program: Program, text: string): void {
    if (program.process.state === 'dead') return
    const { attachment, n } = JSON.parse(text) as { attachment: string; n: number }
    program.told += 1
    program.attachment = attachment
    this.history.record({ type: 'held.told', client: program.name, attachment, n })
  }

  #send(program: Program): void {
    const { connection, process } = program
    if (connection === null || process.state !== 'up' || program.isGone) return
    program.sent += 1
    const { name: client, sent: n } = program
    this.history.record({ type: 'held.sent', client, n })
    connection.send(JSON.stringify({ client, n }))
  }

  #emit(): void {
    const server = this.#listening()
    const served = server?.served ?? []
    if (server === null || server.process.state !== 'up' || served.length === 0) return
    const one = this.#random.pick(served)
    for (let left = this.#random.between(1, 12); left > 0; left -= 1) server.emit(one)
  }

  #close(program: Program): void {
    if (program.process.state === 'dead') return
    program.process.thaw()
    program.isClosed = true
    program.connection?.close()
  }

  #die({ process }: Program): void {
    process.crash()
  }

  #mishap(): void {
    const { live } = this.#network
    if (live.length > 0) this.#random.pick(live).mishap(this.#random.weighted(MISHAPS))
  }

  #mishapOf(client: string): void {
    const link = this.#network.live.find(({ by }) => by === client)
    link?.mishap(this.#random.weighted(MISHAPS))
  }

  #fail(): void {
    const server = this.#server
    if (server === null || server.process.state !== 'up') return
    switch (this.#random.weighted({ crash: 2, stop: 2, freeze: 3 })) {
      case 'crash':
        return this.#crash(server.process)
      case 'stop':
        return void this.#stop(server)
      case 'freeze':
        this.history.record({ type: 'node.frozen', node: server.name })
        this.#network.pause(server.process)
        server.process.freeze()
        this.#timeline.after(this.#random.between(200, 6_000), () => this.#thaw(server))
    }
  }

  #thaw(server: HeldServer): void {
    if (server.process.state !== 'frozen') return
    this.history.record({ type: 'node.thawed', node: server.name })
    server.process.thaw()
  }

  #crash(process: Process): void {
    const server = this.#server
    if (server?.process !== process || process.state === 'dead') return
    this.history.record({ type: 'node.crashed', node: process.name })
    this.#server = null
    process.crash()
    this.#network.serverDied(server)
    this.#startLater()
  }

  async #stop(server: HeldServer): Promise<void> {
    if (server.stopping) return
    server.process.whenDead(() => this.#network.serverDied(server))
    server.whenClosed = () => {
      this.#server = null
      this.#startLater()
    }
    await server.stop(this.#random.pick([0, 500]))
  }

  #startLater(): void {
    const afterMs = this.#isHealed ? 100 : this.#random.between(50, 6_000)
    this.#timeline.after(afterMs, () => {
      if (this.#server === null) this.#start()
    })
  }

  #heal(): void {
    this.#isHealed = true
    this.#network.foul = 0
    this.#store.weather = FINE
    this.history.record({ type: 'world.healed' })
    if (this.#server !== null) this.#thaw(this.#server)
    for (const { process } of this.#programs) process.thaw()
  }

  async #until(problem: string, unrest: () => string | null): Promise<void> {
    const until = this.#timeline.now + HEAL_MS_MAX
    let why = unrest()
    while (why !== null && this.#timeline.now < until) {
      await this.#timeline.advance(this.#timeline.now + 1_000)
      why = unrest()
    }
    await this.#timeline.advance(this.#timeline.now + 3_000)
    if (why !== null) this.history.record({ type: 'world.stuck', why: `${problem}: ${why}` })
  }

  /** A connection that is live has delivered all, both ways; every other one is over. */
  #unrest(): string | null {
    const server = this.#listening()
    if (server === null) return 'there is no server'
    const taken = this.history.of('held.taken')
    for (const program of this.#programs.filter(({ isGone }) => !isGone)) {
      const { name, state, sent, told } = program
      if (state !== 'live') return `${name} is ${state}`
      const got = taken.filter(({ client }) => client === name).length
      if (got < sent) return `${got} of ${sent} messages of ${name} have arrived`
      const served = server.served.find(({ attachment }) => attachment === program.attachment)
      if (served !== undefined && told < served.emitted) {
        return `${name} was told ${told} of ${served.emitted} messages`
      }
    }
    return null
  }

  #left(): string | null {
    const server = this.#listening()
    if (server === null) return 'there is no server'
    const { count } = server.hub
    if (count > 0) return `${count} connections`
    if (server.served.length > 0) return `${server.served.length} clients of the browser`
    // Those of a node that crashed end when their session is loaded again.
    const { authority } = server.holdfast
    const held = openAttachments(this.history).filter(
      (id) => authority.heldSession(id.split('/')[0] ?? '') !== null,
    )
    return held.length === 0 ? null : `attachments: ${held.join(', ')}`
  }

  #lookAtServer(): void {
    const server = this.#listening()
    if (server === null) return
    // An attachment of a node that crashed waits for the end of its grace time.
    const timers = server.process.timers - openAttachments(this.history).length
    const facts = { node: server.name, timers, clients: server.served.length }
    this.history.record({ type: 'held.quiet', ...facts })
  }
}
