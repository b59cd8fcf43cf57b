/**
 * A world with sockets in it: one server, tabs with real clients in them, and a network that loses,
 * delays and doubles connections. Pages crash and come back from what they stored, or from an old
 * copy of it; the server crashes and recovers from its log. Then all heals, everybody leaves, and
 * nothing may be left.
 */
import type { Limits, ReconnectPolicy } from '../../../src/core/index.ts'
import type { ConnectLimits } from '../../../src/doors/connect/hub.ts'
import { ANSWER_GRACE_MS } from '../check-answerers.ts'
import { openAttachments } from '../checker.ts'
import { History } from '../history.ts'
import type { Modules } from '../modules.ts'
import { Process } from '../process.ts'
import { Random } from '../random.ts'
import { MODES, Runners } from '../runners.ts'
import { FINE, SharedStore } from '../store.ts'
import { Timeline } from '../timeline.ts'
import { withoutStacks } from '../world.ts'
import { MISHAPS, Network } from './network.ts'
import type { PageKind } from './page.ts'
import { CONNECT_LIMITS, Server } from './server.ts'
import { Tab } from './tab.ts'
import { steal } from './thief.ts'

export type WireWorldOptions = {
  readonly seed: number
  readonly modules: Modules
  readonly size?: 'large'
}

const LIMITS: Partial<Limits> = {
  queuedTurnsMax: 4,
  waitMs: 3_000,
  cancelGraceMs: 500,
  askMs: 6_000,
  answerGraceMs: ANSWER_GRACE_MS,
  turnMs: 6_000,
  snapshotEvery: 5,
  idleSessionsMax: 1,
  tailItemsMax: 4,
  pageEvents: 3,
  sweepMs: 4_000,
  leaseMs: 4_000,
}

const WISHES = {
  open: 10,
  turn: 30,
  cancel: 5,
  close: 1,
  leave: 3,
  reload: 8,
  crash: 4,
  turnBack: 2,
  clone: 6,
  takeOver: 8,
  sleep: 5,
  steal: 3,
} as const

const TABS_MAX = 6
const HEAL_MS_MAX = 120_000

export async function runWireWorld(options: WireWorldOptions): Promise<History> {
  const world = new WireWorld(options)
  await withoutStacks(
    (reason) => world.noteUnhandled(reason),
    () => world.run(),
  )
  return world.history
}

class WireWorld {
  readonly history: History
  readonly #modules: Modules
  readonly #timeline = new Timeline()
  readonly #random: Random
  readonly #network: Network
  readonly #store: SharedStore
  readonly #runners: Runners
  readonly #kinds: readonly Omit<PageKind, 'role' | 'kinds' | 'presence'>[]
  readonly #connectLimits: Partial<ConnectLimits>
  readonly #isGuarded: boolean
  readonly #times: number
  readonly #tabs: Tab[] = []
  #server: Server | null = null
  #servers = 0
  #named = 0
  #wishes = 0
  #isHealed = false
  /** Tabs that are about to have a page again. */
  #returning = 0

  constructor({ seed, modules, size }: WireWorldOptions) {
    const random = new Random(seed * 2 + 1)
    this.#modules = modules
    this.#random = random
    this.#times = size === 'large' ? 2 : 1
    this.history = new History(seed, false, () => this.#timeline.now)
    const { history } = this
    const shared = { modules, timeline: this.#timeline, random, history }
    this.#network = new Network({ ...shared, server: () => this.#listening() })
    const crash = (process: Process): void => this.#crash(process)
    const nothing = (): void => undefined
    this.#store = new SharedStore({ ...shared, crashPoint: null, crash, freeze: nothing })
    const modes = { ...MODES, ask: 30, askTwice: 8, endless: 4, stone: 0, unwritable: 0 }
    this.#runners = new Runners({ random, history, modes, asked: nothing })
    this.#kinds = ['alice', 'bob'].map((key) => this.#draw(key))
    const tight = random.chance(0.2) ? { bufferedBytesMax: 1_500 } : {}
    this.#connectLimits = { ...CONNECT_LIMITS, ...tight }
    this.#isGuarded = random.chance(0.3)
  }

  #draw(key: string): Omit<PageKind, 'role' | 'kinds' | 'presence'> {
    const random = this.#random
    const weights = { reopen: 5, resume: 5, early: 1, none: 1 } as const
    const reconnect: ReconnectPolicy = random.weighted(weights)
    const graceMs = random.pick([2_000, 8_000, 20_000])
    const history = random.pick(['replay', 'continue'] as const)
    const remembers = random.chance(0.8)
    return { key, reconnect, exclusive: random.chance(0.3), graceMs, history, remembers }
  }

  noteUnhandled(reason: unknown): void {
    this.history.record({ type: 'unhandled', message: String(reason) })
  }

  async run(): Promise<void> {
    const random = this.#random
    const lastsMs = this.#times * random.between(8_000, 25_000)
    this.#start()
    this.#plan(this.#times * random.between(8, 30), lastsMs, () => this.#wish())
    this.#plan(this.#times * random.between(0, 8), lastsMs, () => this.#mishap())
    this.#plan(random.weighted({ no: 3, one: 2 }) === 'no' ? 0 : 1, lastsMs, () => this.#fail())
    this.#network.foul = random.pick([0, 0, 0.1])
    const flaky = random.chance(0.1) ? { failBefore: 0.03, loseReply: 0.03 } : {}
    this.#store.weather = { ...FINE, slow: random.pick([0, 0, 0.1]), ...flaky }
    await this.#timeline.advance(lastsMs)
    this.#heal()
    await this.#until('pages do not come to rest', () => this.#unrest())
    this.#everybodyLeaves()
    await this.#until('something is left', () => this.#left())
    await this.#lookAtServer()
    this.history.record({ type: 'world.quiet' })
    void this.#server?.stop(0)
    await this.#timeline.advance(this.#timeline.now + 40_000)
  }

  #plan(count: number, lastsMs: number, happen: () => void): void {
    for (let left = count; left > 0; left -= 1) {
      this.#timeline.after(this.#random.between(50, lastsMs), happen)
    }
  }

  #listening(): Server | null {
    return this.#server?.isListening === true ? this.#server : null
  }

  #start(): void {
    this.#servers += 1
    const { history } = this
    const [random, modules, store] = [this.#random, this.#modules, this.#store]
    const process = new Process(`node${this.#servers}`, this.#timeline, random)
    const runners = { main: this.#runners.on(process) }
    const door = { connectLimits: this.#connectLimits, isGuarded: this.#isGuarded }
    const node = { process, modules, store, runners, limits: LIMITS, random, history }
    const server = new Server({ ...node, ...door })
    this.#server = server
    // One that cannot start is given up, and another takes its place.
    server.start().catch(() => this.#crash(process))
  }

  /** One person does something. */
  #wish(): void {
    const random = this.#random
    const wish = random.weighted(WISHES)
    const shared = { timeline: this.#timeline, history: this.history, network: this.#network }
    if (wish === 'steal') return steal(this.#name('thief'), { ...shared, random })
    const tab = this.#tabs.length === 0 ? null : random.pick(this.#tabs)
    if (tab === null || (wish === 'open' && this.#tabs.length < TABS_MAX)) return this.#openTab()
    const { page } = tab
    if (page === null) return tab.open()
    const isOver = page.state === 'ended' && wish !== 'takeOver'
    if (isOver && random.chance(0.7)) return this.#again(tab)
    switch (wish) {
      case 'open':
        return page.turn()
      case 'turn':
      case 'cancel':
      case 'close':
      case 'takeOver':
      case 'leave':
        return page[wish]()
      case 'reload':
        return this.#reload(tab, random.between(1, 60))
      case 'crash':
        return this.#reload(tab, random.between(100, 12_000))
      case 'turnBack':
        this.#reload(tab, random.between(1, 3_000))
        return tab.turnBack()
      case 'clone':
        return this.#clone(tab)
      case 'sleep':
        return this.#sleep(page.process)
    }
  }

  #name(kind: string): string {
    this.#named += 1
    return `${kind}${this.#named}`
  }

  #openTab(): void {
    const random = this.#random
    const role = random.chance(0.8) ? 'driver' : 'watcher'
    const kinds = random.pick([[], ['permission'], ['permission', 'choice'], ['choice']])
    const presence = random.chance(0.3)
    const kind: PageKind = { ...random.pick(this.#kinds), role, kinds, presence }
    const { history } = this
    const [modules, timeline, network] = [this.#modules, this.#timeline, this.#network]
    const nextWish = (): number => (this.#wishes += 1)
    const shared = { modules, timeline, random, history, network, nextWish }
    const tab = new Tab(this.#name('tab'), kind, shared)
    this.#tabs.push(tab)
    tab.open()
    // A laptop is closed just when the page loads.
    if (tab.page !== null && random.chance(0.05)) this.#sleep(tab.page.process)
  }

  #again(tab: Tab): void {
    tab.die()
    tab.open()
  }

  #reload(tab: Tab, afterMs: number): void {
    tab.die()
    this.#returning += 1
    this.#timeline.after(afterMs, () => {
      this.#returning -= 1
      if (tab.page === null) tab.open()
    })
  }

  #clone(tab: Tab): void {
    if (this.#tabs.length >= TABS_MAX || !tab.kind.remembers) return
    const clone = tab.clone(this.#name('tab'))
    this.#tabs.push(clone)
    clone.open()
  }

  #sleep(process: Process): void {
    this.#network.pause(process)
    process.freeze()
    this.#timeline.after(this.#random.between(300, 9_000), () => process.thaw())
  }

  #mishap(): void {
    const { live } = this.#network
    if (live.length > 0) this.#random.pick(live).mishap(this.#random.weighted(MISHAPS))
  }

  /** The server fails, or is stopped, or stands still for a while. */
  #fail(): void {
    const server = this.#server
    if (server === null || server.process.state !== 'up') return
    switch (this.#random.weighted({ crash: 4, stop: 2, freeze: 2 })) {
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

  #thaw(server: Server): void {
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

  async #stop(server: Server): Promise<void> {
    if (server.stopping) return
    server.process.whenDead(() => this.#network.serverDied(server))
    server.whenClosed = () => {
      this.#server = null
      this.#startLater()
    }
    await server.stop(this.#random.pick([0, 500, 3_000]))
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
    for (const { page } of this.#tabs) page?.process.thaw()
  }

  /** Lets the healed world go on until there is nothing left to wait for. */
  async #until(problem: string, unrest: () => string | null): Promise<void> {
    const until = this.#timeline.now + HEAL_MS_MAX
    let why: string | null
    do {
      why = unrest()
      while (why !== null && this.#timeline.now < until) {
        await this.#timeline.advance(this.#timeline.now + 1_000)
        why = unrest()
      }
      // What is late may still do harm, or start something anew.
      await this.#timeline.advance(this.#timeline.now + 3_000)
    } while (why === null && unrest() !== null)
    if (why !== null) this.history.record({ type: 'world.stuck', why: `${problem}: ${why}` })
  }

  #unrest(): string | null {
    for (const { page } of this.#tabs) {
      if (page === null) continue
      const { name, state, seen, sessionId } = page
      if (state !== 'live' && state !== 'ended') return `${name} is ${state}`
      if (page.pending > 0) return `${page.pending} wishes of ${name} are pending`
      const last = this.#lastSeq(sessionId, page.isVisible)
      if (state === 'live' && seen.seq < last) return `${name} has seen ${seen.seq} of ${last}`
    }
    for (const [session, { turns }] of this.#store.books) {
      if (turns.size > 0) return `session ${session} has turns that do not end`
    }
    if (this.#returning > 0) return 'pages are about to come back'
    return this.#listening() === null ? 'there is no server' : null
  }

  /** Where the log ends for a page that is told of attachments, or is not. */
  #lastSeq(session: string, presence: boolean): number {
    const events = this.history.logs.get(session)?.events ?? []
    const isTold = (body: string): boolean =>
      presence || !/^\{"type":"(attachment|link)\./.test(body)
    return events.findLast(({ body }) => isTold(body))?.seq ?? 0
  }

  #everybodyLeaves(): void {
    for (const tab of this.#tabs) {
      if (this.#random.chance(0.5)) tab.page?.leave()
      else tab.die()
    }
  }

  #left(): string | null {
    const server = this.#listening()
    if (server === null) return 'there is no server'
    const { count, presences } = server.hub
    if (count + presences > 0) return `${count} connections and ${presences} presences`
    const held = openAttachments(this.history)
    return held.length === 0 ? null : `attachments: ${held.join(', ')}`
  }

  async #lookAtServer(): Promise<void> {
    const server = this.#listening()
    if (server === null) return
    const { count: connections, presences } = server.hub
    const { timers } = server.process
    const { authority } = server.holdfast
    let watchers = 0
    for (const id of [...this.history.logs.keys()].filter(
      (id) => authority.heldSession(id) !== null,
    )) {
      watchers += (await authority.open(id)).watchers.count
    }
    const facts = { node: server.name, timers, connections, presences, watchers }
    this.history.record({ type: 'server.quiet', ...facts })
  }
}
