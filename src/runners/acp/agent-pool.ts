/**
 * The agents of a runner: one for each session, or one for all. An agent is started when a turn
 * needs it, and stopped when it is idle, when another needs its place, or with its session.
 */
import { setImmediate as nextRound } from 'node:timers/promises'
import { HoldfastError } from '../../core/index.ts'
import { unlessAborted } from '../../platform/clock.ts'
import type { Workplace } from '../../platform/child.ts'
import type { ChildFolders } from '../../platform/isolation.ts'
import { AcpAgent } from './agent.ts'
import { loadSdk, type Sdk } from './connection.ts'
import type { AcpSettings } from './options.ts'

/** What an agent is needed for. An agent for all sessions has the folders of the first. */
type AgentUse = {
  readonly session: string
  readonly folders: ChildFolders
  readonly signal: AbortSignal
}

/** An agent, from the moment it is requested. */
class Entry {
  readonly name: string
  /** Null until the process is started. */
  agent: AcpAgent | null = null
  /** Whether the handshake is done. */
  isReady = false
  readonly ready: Promise<AcpAgent>
  users = 0
  /** When it was last used (monotonic). */
  usedAt = performance.now()
  idleTimer: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(name: string, before: Promise<unknown>, start: (sdk: Sdk) => AcpAgent) {
    this.name = name
    this.ready = before.then(() => this.#start(start))
    // Callers of `use` get the error; there may be none any more.
    this.ready.catch(() => undefined)
  }

  /** Whether it can be stopped without losing anything. */
  get isIdle(): boolean {
    return this.users === 0 && this.isReady && this.agent?.isRestorable === true
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    clearTimeout(this.idleTimer)
    await this.agent?.stop()
  }

  async #start(start: (sdk: Sdk) => AcpAgent): Promise<AcpAgent> {
    const sdk = await loadSdk()
    if (this.#isStopped) throw new Error('the agent was stopped before it had started')
    this.agent = start(sdk)
    await this.agent.handshake()
    this.isReady = true
    return this.agent
  }
}

export class AgentPool {
  readonly #settings: AcpSettings
  readonly #workplace: Workplace
  /** By session, or by '' if all sessions share one. */
  readonly #entries = new Map<string, Entry>()
  readonly #stopping = new Map<Entry, Promise<void>>()
  #isClosed = false

  constructor(settings: AcpSettings, workplace: Workplace) {
    this.#settings = settings
    this.#workplace = workplace
  }

  /** Works with the agent of a session, which is started if necessary. */
  async use({ session, folders, signal }: AgentUse, work: (agent: AcpAgent) => Promise<void>) {
    const name = this.#settings.perSession ? session : ''
    // The end of a child may be an event that has not been handled yet; the second round of the
    // event loop has polled for events after this call.
    await nextRound()
    await nextRound()
    signal.throwIfAborted()
    const entry = this.#entry(name, folders)
    clearTimeout(entry.idleTimer)
    entry.users += 1
    try {
      await work(await unlessAborted(entry.ready, signal))
    } finally {
      this.#giveBack(entry)
    }
  }

  /** Stops the agent of a closed session. */
  async release(session: string): Promise<void> {
    if (!this.#settings.perSession) return this.#shared?.forget(session)
    const entry = this.#entries.get(session)
    if (entry !== undefined) this.#stop(entry)
    await this.#ended(session)
  }

  /** Kills the agent of a session that this node has lost; null: those of all sessions. */
  lose(session: string | null): void {
    if (session !== null && !this.#settings.perSession) {
      // Other sessions use the same agent, so it only forgets this one; its turn is cancelled.
      this.#shared?.forget(session).catch(() => undefined)
      return
    }
    for (const entry of [...this.#entries.values(), ...this.#stopping.keys()]) {
      if (entry.name !== (session ?? entry.name)) continue
      this.#stop(entry)
      entry.agent?.kill('was killed: another node owns its sessions')
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const entry of this.#entries.values()) this.#stop(entry)
    await Promise.all(this.#stopping.values())
  }

  /** The agent of all sessions, if its handshake is done. */
  get #shared(): AcpAgent | null {
    const entry = this.#entries.get('')
    return entry?.isReady === true ? entry.agent : null
  }

  #entry(name: string, folders: ChildFolders): Entry {
    const known = this.#entries.get(name)
    if (known !== undefined && (!known.isReady || known.agent?.isAlive === true)) return known
    if (known !== undefined) this.#stop(known)
    if (this.#isClosed) throw new HoldfastError('draining', 'the agents are being stopped')
    if (this.#settings.perSession) this.#makeRoom()
    // I2: it starts after the end of the one before it, which worked in the same sessions.
    const start = (sdk: Sdk): AcpAgent =>
      new AcpAgent(sdk, this.#workplace, this.#settings, folders)
    const entry = new Entry(name, this.#ended(name), start)
    this.#entries.set(name, entry)
    const stop = (): void => this.#stop(entry)
    entry.ready.then((agent) => agent.ended).then(stop, stop)
    return entry
  }

  /** Stops the agent that has been idle longest, if `childrenMax` is reached. */
  #makeRoom(): void {
    const { childrenMax } = this.#settings
    if (this.#entries.size < childrenMax) return
    const idle = [...this.#entries.values()].filter(({ isIdle }) => isIdle)
    const [oldest] = idle.sort((one, other) => one.usedAt - other.usedAt)
    if (oldest !== undefined) return this.#stop(oldest)
    throw new HoldfastError('too_many', `${childrenMax} agents are busy: try again later`)
  }

  #giveBack(entry: Entry): void {
    entry.users -= 1
    entry.usedAt = performance.now()
    if (entry.users > 0) return
    const stopIfIdle = (): void => {
      if (entry.isIdle) this.#stop(entry)
    }
    entry.idleTimer = setTimeout(stopIfIdle, this.#settings.idleMs).unref()
  }

  /** The next `use` starts another. */
  #stop(entry: Entry): void {
    if (this.#entries.get(entry.name) === entry) this.#entries.delete(entry.name)
    if (this.#stopping.has(entry)) return
    const stopped = entry.stop().finally(() => this.#stopping.delete(entry))
    this.#stopping.set(entry, stopped)
  }

  /** Resolves when the agents with this name that are being stopped have ended. */
  #ended(name: string): Promise<unknown> {
    const ending = [...this.#stopping].filter(([entry]) => entry.name === name)
    return Promise.all(ending.map(([, stopped]) => stopped))
  }
}
