/**
 * A world: a few nodes on one store, clients who want things, and everything that goes wrong, all
 * drawn from one seed. Then it heals, comes to rest and is shut down. Its history is what the
 * checker gets.
 */
import type { Limits } from '../../src/core/index.ts'
import { ANSWER_GRACE_MS } from './check-answerers.ts'
import { Clients, CROWDED, WISHES } from './clients.ts'
import { openAttachments } from './checker.ts'
import { History } from './history.ts'
import type { Modules } from './modules.ts'
import { Node } from './node.ts'
import { Process } from './process.ts'
import { Random } from './random.ts'
import { MODES, PATIENT, Runners, STEADY } from './runners.ts'
import { FINE, SharedStore, type CrashPoint, type Weather } from './store.ts'
import { Timeline } from './timeline.ts'

export type WorldOptions = {
  readonly seed: number
  readonly modules: Modules
  readonly crashPoint?: CrashPoint | null
  /** A small one has few wishes and no mishaps but a planned crash; a large one lasts long. */
  readonly size?: 'small' | 'large'
}

/** Bounds so tight that every path is taken. */
const LIMITS: Partial<Limits> = {
  queuedTurnsMax: 4,
  waitMs: 3_000,
  cancelGraceMs: 500,
  askMs: 3_000,
  answerGraceMs: ANSWER_GRACE_MS,
  graceMs: 2_500,
  reopenGraceMs: 4_000,
  snapshotEvery: 5,
  idleSessionsMax: 1,
  tailItemsMax: 4,
  pageEvents: 3,
  commitAppendsMax: 2,
  listMax: 3,
  sweepMs: 4_000,
  leaseMs: 10_000,
}

const HOUR_MS = 3_600_000
/** How long a healed world may take to come to rest. */
const REST_MS_MAX = 240_000

const WEATHERS: Readonly<Record<string, Weather>> = {
  fine: FINE,
  slow: { ...FINE, slow: 0.3 },
  flaky: { ...FINE, failBefore: 0.03, loseReply: 0.03, lateReply: 0.002, slow: 0.1, ghost: 0.03 },
  faint: { ...FINE, slow: 0.05, freezeAfter: 0.15, crashAfter: 0.003 },
  storm: { ...FINE, failBefore: 0.15, loseReply: 0.15, lateReply: 0.01, slow: 0.3, ghost: 0.05 },
}

export async function runWorld(options: WorldOptions): Promise<History> {
  const world = new World(options)
  await withoutStacks(
    (reason) => world.noteUnhandled(reason),
    () => world.run(),
  )
  return world.history
}

/** Refusals are ordinary in a world, and nobody reads their stacks; one that nobody hears is not. */
export async function withoutStacks(
  unhandled: (reason: unknown) => void,
  work: () => Promise<void>,
): Promise<void> {
  const { stackTraceLimit } = Error
  process.on('unhandledRejection', unhandled)
  Error.stackTraceLimit = 0
  try {
    await work()
  } finally {
    Error.stackTraceLimit = stackTraceLimit
    process.off('unhandledRejection', unhandled)
  }
}

export class World {
  readonly history: History
  readonly store: SharedStore
  readonly #options: WorldOptions
  readonly #timeline = new Timeline()
  readonly #random: Random
  readonly #clients: Clients
  readonly #runners: Runners
  readonly #nodesWanted: number
  readonly #limits: Partial<Limits>
  readonly #forgetsLeases: boolean
  /** Anything goes; or many at once; or hardly anybody, and long turns. */
  readonly #kind: 'any' | 'crowded' | 'lonely'
  #nodes: Node[] = []
  #named = 0
  #isHealed = false

  constructor(options: WorldOptions) {
    const { seed, modules, crashPoint = null } = options
    const random = new Random(seed)
    this.#options = options
    this.#random = random
    this.#kind = random.weighted({ any: 5, crowded: 3, lonely: 2 })
    this.#forgetsLeases = random.chance(0.2)
    const wallJumps = options.size !== 'small' && random.chance(0.4)
    this.history = new History(seed, wallJumps, () => this.#timeline.now)
    const shared = { modules, timeline: this.#timeline, random, history: this.history }
    const crash = (process: Process): void => this.#crash(process)
    const freeze = (process: Process): void => this.#freeze(process, 11_000)
    this.store = new SharedStore({ ...shared, crashPoint, crash, freeze })
    const busySessions = (): string[] =>
      [...this.#runners.active.values()].map((run) => run.session)
    const wishes = this.#kind === 'crowded' ? CROWDED : WISHES
    this.#clients = new Clients({ ...shared, wishes, nodes: () => this.#nodes, busySessions })
    const asked = (session: string, ask: string): void => this.#clients.asked(session, ask)
    const modes = { any: MODES, crowded: STEADY, lonely: PATIENT }[this.#kind]
    this.#runners = new Runners({ random, history: this.history, modes, asked })
    this.#nodesWanted = random.between(1, options.size === 'small' ? 2 : 3)
    const retainMs = random.chance(0.1) ? 10_000 : 30 * 24 * HOUR_MS
    const turnMs = random.chance(this.#kind === 'lonely' ? 0.8 : 0.2) ? 25_000 : 6_000
    this.#limits = { ...LIMITS, retainMs, turnMs }
  }

  async run(): Promise<void> {
    const isSmall = this.#options.size === 'small'
    const times = this.#options.size === 'large' ? 3 : 1
    const lastsMs = isSmall ? 6_000 : times * this.#random.between(10_000, 40_000)
    for (let count = 0; count < this.#nodesWanted; count += 1) this.#addNode()
    const wishes = { any: [10, 45], crowded: [8, 20], lonely: [3, 8] } as const
    const [fewest, most] = isSmall ? [8, 8] : wishes[this.#kind]
    this.#planWishes(times * this.#random.between(fewest, most), lastsMs)
    if (!isSmall) this.#planMishaps(times * this.#random.between(0, 5), lastsMs)
    await this.#timeline.advance(lastsMs)
    this.#heal()
    await this.#rest()
    await this.#shutDown()
  }

  noteUnhandled(reason: unknown): void {
    this.history.record({ type: 'unhandled', message: String(reason) })
  }

  #planWishes(count: number, lastsMs: number): void {
    for (let wish = 0; wish < count; wish += 1) {
      this.#timeline.after(this.#random.between(50, lastsMs), () => this.#clients.wish())
    }
  }

  #planMishaps(mishaps: number, lastsMs: number): void {
    const random = this.#random
    this.store.weather = WEATHERS[random.pick(['fine', 'slow', 'faint', 'flaky'])] ?? FINE
    for (let count = mishaps; count > 0; count -= 1) {
      this.#timeline.after(random.between(0, lastsMs), () => this.#mishap())
    }
  }

  #mishap(): void {
    const random = this.#random
    const alive = this.#nodes.filter(({ process }) => process.state !== 'dead')
    if (alive.length === 0) return
    const busy = new Set([...this.#runners.active.values()].map((run) => run.node))
    const likely = alive.filter(({ name }) => busy.has(name))
    const node = random.pick(likely.length > 0 && random.chance(0.7) ? likely : alive)
    const jump = this.history.wallJumps ? 4 : 0
    const forget = this.#forgetsLeases ? 8 : 0
    const part = this.#kind === 'lonely' ? 9 : 3
    switch (random.weighted({ crash: 3, freeze: 3, stop: 2, storm: 1, part, jump, forget })) {
      case 'crash':
        return this.#crash(node.process)
      case 'freeze':
        return this.#freeze(node.process)
      case 'stop':
        return void this.#stop(node, random.pick([0, 500, 5_000]))
      case 'jump':
        return this.#jump(node.process)
      case 'storm':
        return this.#storm()
      case 'part':
        return this.#part(node.name)
      case 'forget':
        return this.store.forget(node.name)
    }
  }

  #addNode(): void {
    this.#named += 1
    const random = this.#random
    const process = new Process(`node${this.#named}`, this.#timeline, random)
    const { modules } = this.#options
    const runners = { main: this.#runners.on(process) }
    const shared = { modules, store: this.store, random, history: this.history }
    const node = new Node({ process, runners, limits: this.#limits, ...shared })
    this.#nodes.push(node)
    // One that cannot start is stopped, and another takes its place.
    node.start().catch(() => this.#stop(node, 0))
  }

  #addNodeLater(): void {
    const afterMs = this.#isHealed ? 1_000 : this.#random.between(100, 15_000)
    this.#timeline.after(afterMs, () => {
      const wanted = this.#clients.resting ? 0 : this.#nodesWanted
      if (this.#nodes.length < wanted) this.#addNode()
    })
  }

  #crash(process: Process): void {
    if (process.state === 'dead') return
    this.history.record({ type: 'node.crashed', node: process.name })
    this.#nodes = this.#nodes.filter((node) => node.process !== process)
    process.crash()
    this.#addNodeLater()
  }

  /** Mostly longer than the lease, so that another node takes over meanwhile. */
  #freeze(process: Process, atLeastMs = 500): void {
    if (process.state !== 'up') return
    this.history.record({ type: 'node.frozen', node: process.name })
    process.freeze()
    this.#timeline.after(this.#random.between(atLeastMs, 25_000), () => this.#thaw(process))
  }

  #thaw(process: Process): void {
    if (process.state !== 'frozen') return
    this.history.record({ type: 'node.thawed', node: process.name })
    process.thaw()
  }

  async #stop(node: Node, drainMs: number): Promise<void> {
    if (node.stopping) return
    await node.stop(drainMs)
    this.#nodes = this.#nodes.filter((other) => other !== node)
    this.#addNodeLater()
  }

  #jump(process: Process): void {
    const ms = this.#random.between(-5 * HOUR_MS, 5 * HOUR_MS)
    process.wallMs += ms
    this.history.record({ type: 'wall.jumped', node: process.name, ms })
  }

  /** A node is parted from the store, mostly for so long that its lease ends. */
  #part(name: string): void {
    this.history.record({ type: 'node.parted', node: name })
    this.store.cutOff.add(name)
    this.#timeline.after(this.#random.between(3_000, 25_000), () => this.#rejoin(name))
  }

  #rejoin(name: string): void {
    if (!this.store.cutOff.delete(name)) return
    this.history.record({ type: 'node.rejoined', node: name })
  }

  #storm(): void {
    const { weather } = this.store
    this.store.weather = WEATHERS['storm'] ?? FINE
    this.#timeline.after(this.#random.between(1_000, 12_000), () => {
      if (!this.#isHealed) this.store.weather = weather
    })
  }

  #heal(): void {
    this.#isHealed = true
    this.store.weather = FINE
    this.history.record({ type: 'world.healed' })
    for (const name of this.store.cutOff) this.#rejoin(name)
    for (const { process } of this.#nodes) this.#thaw(process)
    while (this.#nodes.length < this.#nodesWanted) this.#addNode()
  }

  async #rest(): Promise<void> {
    const until = this.#timeline.now + REST_MS_MAX
    let why: string | null
    do {
      why = await this.#restless(until)
      this.#clients.resting = true
      // A session that could not be picked up is tried again within eight seconds.
      await this.#timeline.advance(this.#timeline.now + 9_000)
      // A late call of a node that crashed may have started a turn: its lease has to end first.
    } while (why === null && this.#unrest() !== null)
    if (why !== null) this.history.record({ type: 'world.stuck', why })
    for (const node of this.#nodes.filter(({ reachable }) => reachable)) {
      this.history.record({ type: 'node.quiet', node: node.name, ...node.inHand() })
    }
    this.history.record({ type: 'world.quiet' })
  }

  /** Waits for rest; why there is none until then, or null. */
  async #restless(until: number): Promise<string | null> {
    let why = this.#unrest()
    while (why !== null && this.#timeline.now < until) {
      await this.#timeline.advance(this.#timeline.now + 2_000)
      why = this.#unrest()
    }
    return why
  }

  /** Why the world is not at rest, or null. */
  #unrest(): string | null {
    if (this.store.lateUntil > this.#timeline.now) return 'an answer of the store is on its way'
    if (this.#clients.pending > 0) return `${this.#clients.pending} operations are pending`
    for (const [session, books] of this.store.books) {
      if (books.turns.size > 0) return `session ${session} has turns that do not end`
    }
    for (const { session, place } of this.#clients.followersPending) {
      const seq = this.store.books.get(session)?.seq ?? 0
      // Who follows at a node that has lost the session and does not know waits until it knows.
      if (place.seq < seq && !this.history.forgetsLeases)
        return `a follower of ${session} waits at ${place.seq} of ${seq}`
    }
    if (this.history.wallJumps) return null
    const held = openAttachments(this.history)
    return held.length === 0 ? null : `attachments do not end: ${held.join(', ')}`
  }

  async #shutDown(): Promise<void> {
    for (const node of this.#nodes) void this.#stop(node, 0)
    await this.#timeline.advance(this.#timeline.now + 60_000)
    if (this.#clients.pending > 0 || this.#clients.followersPending.length > 0) {
      this.history.record({
        type: 'world.stuck',
        why: 'somebody waits for nodes that have stopped',
      })
    }
    if (this.#nodes.length > 0) {
      this.history.record({ type: 'world.stuck', why: `${this.#nodes.length} nodes do not stop` })
    }
  }
}
