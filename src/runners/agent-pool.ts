/**
 * The agents of a runner: one for each session, or one for all. An agent is started when a turn
 * needs it, and stopped when it is idle, when another needs its place, or with its session.
 */
import { setImmediate as nextRound } from 'node:timers/promises'
import { HoldfastError } from '../core/index.ts'
import { unlessAborted } from '../platform/clock.ts'

/** A child that outlives a turn. */
export interface PooledAgent {
  readonly isAlive: boolean
  /** Whether another child can continue its sessions. */
  readonly isRestorable: boolean
  readonly ended: Promise<unknown>
  /** Resolves when it can be used; one that fails it has ended. */
  handshake(): Promise<void>
  /** Forgets a session, if it serves several. */
  forget?(session: string): Promise<void>
  /** Resolves when it has ended. */
  stop(): Promise<void>
  /** Ends it at once. */
  kill(problem: string): void
}

export type PoolSettings = {
  /** One agent for each session, or one for all. */
  readonly perSession?: boolean
  readonly childrenMax: number
  readonly idleMs: number
}

/** What an agent is needed for. */
type AgentUse<Agent> = {
  readonly session: string
  readonly signal: AbortSignal
  /** Starts the child. An agent for all sessions is started for the first. */
  readonly start: () => Agent
  /** Whether an agent that runs can be used; otherwise another replaces it. */
  readonly fits?: (agent: Agent) => boolean
}

/** An agent, from the moment it is requested. */
class Entry<Agent extends PooledAgent> {
  readonly name: string
  /** Null until the process is started. */
  agent: Agent | null = null
  /** Whether the handshake is done. */
  isReady = false
  readonly ready: Promise<Agent>
  users = 0
  /** When it was last used (monotonic). */
  usedAt = performance.now()
  idleTimer: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(name: string, before: Promise<unknown>, start: () => Agent) {
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

  async #start(start: () => Agent): Promise<Agent> {
    if (this.#isStopped) throw new Error('the agent was stopped before it had started')
    this.agent = start()
    await this.agent.handshake()
    this.isReady = true
    return this.agent
  }
}

export class AgentPool<Agent extends PooledAgent> {
  readonly #settings: Required<PoolSettings>
  /** By session, or by '' if all sessions share one. */
  readonly #entries = new Map<string, Entry<Agent>>()
  readonly #stopping = new Map<Entry<Agent>, Promise<void>>()
  #isClosed = false

  constructor({ perSession = true, childrenMax, idleMs }: PoolSettings) {
    this.#settings = { perSession, childrenMax, idleMs }
  }

  /** Works with the agent of a session, which is started if necessary. */
  async use<Result>(
    { session, signal, start, fits }: AgentUse<Agent>,
    work: (agent: Agent) => Promise<Result>,
  ): Promise<Result> {
    const name = this.#settings.perSession ? session : ''
    // The end of a child may be an event that has not been handled yet; the second round of the
    // event loop has polled for events after this call.
    await nextRound()
    await nextRound()
    signal.throwIfAborted()
    const entry = this.#entry(name, start, fits)
    clearTimeout(entry.idleTimer)
    entry.users += 1
    try {
      return await work(await unlessAborted(entry.ready, signal))
    } finally {
      this.#giveBack(entry)
    }
  }

  /** Stops the agent of a closed session. */
  async release(session: string): Promise<void> {
    if (!this.#settings.perSession) return this.#shared?.forget?.(session)
    const entry = this.#entries.get(session)
    if (entry !== undefined) this.#stop(entry)
    await this.#ended(session)
  }

  /** No turn of it runs: stops the agent of a session, if that loses nothing. */
  async stopIdle(session: string): Promise<void> {
    const shared = this.#shared
    if (shared?.isRestorable === true) {
      // If it cannot be closed there, the next turn tells.
      return shared.forget?.(session).catch(() => undefined)
    }
    const entry = this.#entries.get(session)
    if (entry?.isIdle !== true) return
    this.#stop(entry)
    await this.#ended(session)
  }

  /** Kills the agent of a session that this node has lost; null: those of all sessions. */
  lose(session: string | null): void {
    if (session !== null && !this.#settings.perSession) {
      // Other sessions use the same agent, so it only forgets this one; its turn is cancelled.
      this.#shared?.forget?.(session).catch(() => undefined)
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
  get #shared(): Agent | null {
    const entry = this.#entries.get('')
    return entry?.isReady === true ? entry.agent : null
  }

  #entry(name: string, start: () => Agent, fits: AgentUse<Agent>['fits']): Entry<Agent> {
    const known = this.#entries.get(name)
    if (known !== undefined && this.#isUsable(known, fits)) return known
    if (known !== undefined) this.#stop(known)
    if (this.#isClosed) throw new HoldfastError('draining', 'the agents are being stopped')
    if (this.#settings.perSession) this.#makeRoom()
    // I2: it starts after the end of the one before it, which worked in the same sessions.
    const entry = new Entry(name, this.#ended(name), start)
    this.#entries.set(name, entry)
    const stop = (): void => this.#stop(entry)
    entry.ready.then((agent) => agent.ended).then(stop, stop)
    return entry
  }

  #isUsable({ isReady, agent }: Entry<Agent>, fits: AgentUse<Agent>['fits']): boolean {
    if (!isReady || agent === null) return true
    return agent.isAlive && fits?.(agent) !== false
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

  #giveBack(entry: Entry<Agent>): void {
    entry.users -= 1
    entry.usedAt = performance.now()
    if (entry.users > 0) return
    const stopIfIdle = (): void => {
      if (entry.isIdle) this.#stop(entry)
    }
    entry.idleTimer = setTimeout(stopIfIdle, this.#settings.idleMs).unref()
  }

  /** The next `use` starts another. */
  #stop(entry: Entry<Agent>): void {
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
