/** Where a child lives: started on demand, kept while it is used, stopped when it is idle. */
import { setImmediate as nextRound } from 'node:timers/promises'
import { unlessAborted } from '../../platform/abort.ts'
import { AcpAgent, type AgentSettings } from './agent.ts'
import { loadSdk } from './sdk.ts'

export type HostSettings = AgentSettings & { readonly idleMs: number }

/** A child, from the moment it is wanted. */
class Tenant {
  /** Once there is a process. */
  agent: AcpAgent | null = null
  /** Whether it has shaken hands. */
  isReady = false
  readonly ready: Promise<AcpAgent>
  #isStopped = false

  /** I2: it starts when the one before it is gone, for both would work in the same session. */
  constructor(settings: HostSettings, before: Promise<void>) {
    this.ready = before.then(() => this.#start(settings))
    // Whoever waits for it learns of a failure; it may be that nobody does any more.
    this.ready.catch(() => undefined)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.agent?.stop()
  }

  kill(): void {
    this.#isStopped = true
    this.agent?.kill('was killed: its sessions are another node’s')
  }

  async #start(settings: HostSettings): Promise<AcpAgent> {
    const sdk = await loadSdk()
    if (this.#isStopped) throw new Error('the agent was stopped before it had started')
    this.agent = new AcpAgent(sdk, settings)
    await this.agent.shakeHands(sdk)
    this.isReady = true
    return this.agent
  }
}

export class Host {
  readonly #settings: HostSettings
  #tenant: Tenant | null = null
  /** Resolves when all that were here are gone, but for the one that is. */
  #gone: Promise<void> = Promise.resolve()
  readonly #leaving = new Set<Tenant>()
  #users = 0
  #idleTimer: NodeJS.Timeout | undefined
  /** When it was last used, by the clock that never goes back. */
  usedAt = performance.now()

  constructor(settings: HostSettings) {
    this.#settings = settings
  }

  /** Whether there is a child, or is about to be. */
  get isOccupied(): boolean {
    return this.#tenant !== null
  }

  /** Whether nobody uses it and there is no child either, not even one that is on its way out. */
  get isUnused(): boolean {
    return this.#users === 0 && this.#tenant === null && this.#leaving.size === 0
  }

  /** Whether the child could go without any loss. */
  get isIdle(): boolean {
    const { agent = null, isReady = false } = this.#tenant ?? {}
    return this.#users === 0 && isReady && agent?.isRestorable === true
  }

  /** The child, if there is one that can be spoken to. */
  get agent(): AcpAgent | null {
    return this.#tenant?.isReady === true ? this.#tenant.agent : null
  }

  /** The living child, started if need be. Whoever gets it gives it back. */
  async acquire(signal: AbortSignal): Promise<AcpAgent> {
    clearTimeout(this.#idleTimer)
    this.#users += 1
    try {
      // One that has died meanwhile: that is heard when the events that wait have come in.
      if (this.agent !== null) await eventsThatWait()
      return await unlessAborted(this.#current(), signal)
    } catch (error) {
      this.giveBack()
      throw error
    }
  }

  giveBack(): void {
    this.#users -= 1
    this.usedAt = performance.now()
    if (this.#users > 0) return
    clearTimeout(this.#idleTimer)
    const stopIfIdle = (): void => {
      if (this.isIdle) void this.stop()
    }
    this.#idleTimer = setTimeout(stopIfIdle, this.#settings.idleMs).unref()
  }

  /** Ends the child; resolves when it is gone. The next who acquires it starts another. */
  stop(): Promise<void> {
    clearTimeout(this.#idleTimer)
    if (this.#tenant !== null) this.#turnOut(this.#tenant)
    return this.#gone
  }

  /** Ends all there are at once: those too that were only asked to end. */
  kill(): void {
    const last = this.#tenant
    for (const tenant of last === null ? this.#leaving : [last, ...this.#leaving]) tenant.kill()
    void this.stop()
  }

  #current(): Promise<AcpAgent> {
    const last = this.#tenant
    if (last !== null && (!last.isReady || last.agent?.isAlive === true)) return last.ready
    if (last !== null) this.#turnOut(last)
    const tenant = new Tenant(this.#settings, this.#gone)
    this.#tenant = tenant
    const vacate = (): void => {
      if (this.#tenant === tenant) this.#turnOut(tenant)
    }
    tenant.ready.then((agent) => agent.ended).then(vacate, vacate)
    return tenant.ready
  }

  #turnOut(tenant: Tenant): void {
    this.#tenant = null
    this.#leaving.add(tenant)
    const leaving = tenant.stop().finally(() => this.#leaving.delete(tenant))
    this.#gone = Promise.all([this.#gone, leaving]).then(() => undefined)
  }
}

/** Two rounds of the event loop: the second one has asked for events after this was called. */
async function eventsThatWait(): Promise<void> {
  await nextRound()
  await nextRound()
}
