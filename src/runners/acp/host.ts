/** Where a child lives: started on demand, kept while it is used, stopped when it is idle. */
import { setImmediate as nextRound } from 'node:timers/promises'
import { unlessAborted } from '../abort.ts'
import { AcpAgent, type AgentSettings } from './agent.ts'
import { loadSdk } from './sdk.ts'

export type HostSettings = AgentSettings & { readonly idleMs: number }

/** Two rounds of the event loop: the second one has asked for events after this was called. */
async function eventsThatWait(): Promise<void> {
  await nextRound()
  await nextRound()
}

export class Host {
  readonly #settings: HostSettings
  #agent: Promise<AcpAgent> | null = null
  /** The same, once it has started. */
  #started: AcpAgent | null = null
  #users = 0
  #idleTimer: NodeJS.Timeout | undefined
  /** When it was last used, by the clock that never goes back. */
  usedAt = performance.now()

  constructor(settings: HostSettings) {
    this.#settings = settings
  }

  /** Whether there is a child, or is about to be. */
  get isOccupied(): boolean {
    return this.#agent !== null
  }

  /** Whether nobody uses it and there is no child either. */
  get isUnused(): boolean {
    return this.#users === 0 && this.#agent === null
  }

  /** Whether the child could go without any loss. */
  get isIdle(): boolean {
    return this.#users === 0 && this.#started !== null && this.#started.isRestorable
  }

  /** The living child, started if need be. Whoever gets it gives it back. */
  async acquire(signal: AbortSignal): Promise<AcpAgent> {
    clearTimeout(this.#idleTimer)
    this.#users += 1
    try {
      // One that has died meanwhile: that is heard when the events that wait have come in.
      if (this.#started !== null) await eventsThatWait()
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

  /** The child, if there is one that has started. */
  get agent(): AcpAgent | null {
    return this.#started
  }

  /** Ends the child; resolves when it is gone. The next who acquires it starts another. */
  async stop(): Promise<void> {
    clearTimeout(this.#idleTimer)
    const agent = this.#agent
    this.#agent = null
    this.#started = null
    // One that failed to start has ended itself.
    await agent?.then(
      (started) => started.stop(),
      () => undefined,
    )
  }

  #current(): Promise<AcpAgent> {
    if (this.#agent !== null && this.#started?.isAlive !== false) return this.#agent
    const agent = loadSdk().then((sdk) => AcpAgent.start(sdk, this.#settings))
    this.#agent = agent
    this.#started = null
    agent.then(
      (started) => {
        if (this.#agent !== agent) return
        this.#started = started
        void started.ended.then(() => this.#vacate(agent))
      },
      () => this.#vacate(agent),
    )
    return agent
  }

  #vacate(agent: Promise<AcpAgent>): void {
    if (this.#agent !== agent) return
    this.#agent = null
    this.#started = null
  }
}
