/** A slot for one child: it is started on demand, and stopped when it is idle. */
import { setImmediate as nextRound } from 'node:timers/promises'
import { unlessAborted } from '../../platform/abort.ts'
import type { Workplace } from '../../platform/workplace.ts'
import { AcpAgent } from './agent.ts'
import { loadSdk } from './connection.ts'
import type { AcpSettings } from './options.ts'

/** A child, from the moment it is requested. */
class SlotChild {
  /** Null until the process is started. */
  agent: AcpAgent | null = null
  /** Whether the handshake is done. */
  isReady = false
  readonly ready: Promise<AcpAgent>
  #isStopped = false

  /** I2: it starts after the end of the child before it, which worked in the same sessions. */
  constructor(workplace: Workplace, settings: AcpSettings, before: Promise<unknown>) {
    this.ready = before.then(() => this.#start(workplace, settings))
    // Callers of `acquire` get the error; there may be none any more.
    this.ready.catch(() => undefined)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.agent?.stop()
  }

  async #start(workplace: Workplace, settings: AcpSettings): Promise<AcpAgent> {
    const sdk = await loadSdk()
    if (this.#isStopped) throw new Error('the agent was stopped before it had started')
    this.agent = new AcpAgent(sdk, workplace, settings)
    await this.agent.handshake(sdk)
    this.isReady = true
    return this.agent
  }
}

export class ChildSlot {
  readonly #workplace: Workplace
  readonly #settings: AcpSettings
  #child: SlotChild | null = null
  /** Resolves when all earlier children have ended. */
  #ended: Promise<unknown> = Promise.resolve()
  readonly #stopping = new Set<SlotChild>()
  #users = 0
  #idleTimer: NodeJS.Timeout | undefined
  /** When it was last used (monotonic). */
  usedAt = performance.now()

  constructor(workplace: Workplace, settings: AcpSettings) {
    this.#workplace = workplace
    this.#settings = settings
  }

  /** Whether there is a child, or one is being started. */
  get isOccupied(): boolean {
    return this.#child !== null
  }

  /** Whether it has neither users nor a child, nor one that is being stopped. */
  get isUnused(): boolean {
    return this.#users === 0 && this.#child === null && this.#stopping.size === 0
  }

  /** Whether the child can be stopped without losing anything. */
  get isIdle(): boolean {
    return this.#users === 0 && this.agent?.isRestorable === true
  }

  /** The agent, if the handshake is done. */
  get agent(): AcpAgent | null {
    return this.#child?.isReady === true ? this.#child.agent : null
  }

  /** The agent, started if necessary. Every `acquire` needs a `giveBack`. */
  async acquire(signal: AbortSignal): Promise<AcpAgent> {
    clearTimeout(this.#idleTimer)
    this.#users += 1
    try {
      // Its end may be an event that has not been handled yet.
      if (this.agent !== null) await pendingEvents()
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

  /** Stops the child; resolves when it has ended. The next `acquire` starts another. */
  stop(): Promise<unknown> {
    clearTimeout(this.#idleTimer)
    if (this.#child !== null) this.#dismiss(this.#child)
    return this.#ended
  }

  /** Kills all children, also those that are being stopped. */
  kill(): void {
    void this.stop()
    for (const { agent } of this.#stopping) {
      agent?.kill('was killed: another node owns its sessions')
    }
  }

  #current(): Promise<AcpAgent> {
    const last = this.#child
    if (last !== null && (!last.isReady || last.agent?.isAlive === true)) return last.ready
    if (last !== null) this.#dismiss(last)
    const child = new SlotChild(this.#workplace, this.#settings, this.#ended)
    this.#child = child
    const dismiss = (): void => {
      if (this.#child === child) this.#dismiss(child)
    }
    child.ready.then((agent) => agent.ended).then(dismiss, dismiss)
    return child.ready
  }

  #dismiss(child: SlotChild): void {
    this.#child = null
    this.#stopping.add(child)
    const stopping = child.stop().finally(() => this.#stopping.delete(child))
    this.#ended = Promise.all([this.#ended, stopping])
  }
}

/** Two rounds of the event loop: the second has polled for events after this call. */
async function pendingEvents(): Promise<void> {
  await nextRound()
  await nextRound()
}
