/**
 * The runner for agents that speak the Agent Client Protocol: long-lived children, one for each
 * session or one for all, whose permission requests become asks.
 *
 * I2: a prompt is sent when the one before it in the same session has ended, or its child is gone.
 * I10: a cancelled turn is passed on; an agent that goes on with it is killed.
 *
 * The agent's own session id is bound when the agent has begun to work in that session, and is
 * loaded by that id ever after. One that is bound and cannot be loaded fails its turns with
 * `backend_lost`: there is never a second id. An agent that cannot load sessions has ids that mean
 * nothing beyond a child's life: they are not bound, its children are not stopped for being idle,
 * and where one was lost the log says that its context is.
 */
import { resolve } from 'node:path'
import {
  HoldfastError,
  type Diagnose,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerSession,
  type RunnerTurn,
} from '../../core/index.ts'
import { unlessAborted } from '../../platform/abort.ts'
import { childEnvironment } from '../../platform/child.ts'
import { wait } from '../../platform/clock.ts'
import { sessionFolder } from '../../platform/folders.ts'
import { killOrphans, killOwn, markOf } from '../../platform/processes.ts'
import { AgentError, AgentGone, type AcpAgent } from './agent.ts'
import { Host, type HostSettings } from './host.ts'
import { ACP_DEFAULTS, type AcpOptions } from './options.ts'
import { Outbox } from './outbox.ts'
import { PromptRun } from './prompt-run.ts'

export type { AcpOptions } from './options.ts'

export function acpRunner(options: AcpOptions): Runner {
  return new AcpRunner(options)
}

type Settings = HostSettings &
  Pick<AcpOptions, 'askMs' | 'onNobody' | 'cwd' | 'folder'> & {
    readonly perSession: boolean
    readonly childrenMax: number
    readonly reopenMs: number
  }

class AcpRunner implements Runner {
  readonly #settings: Settings
  /** By session, or by nothing: all share one. */
  readonly #hosts = new Map<string, Host>()
  /** The last turn of each session, until it has really ended. */
  readonly #working = new Map<string, Promise<void>>()
  /** When each session was last opened in an agent here (monotonic), as long as that matters. */
  readonly #openedAt = new Map<string, number>()
  readonly #reaped: Promise<unknown>
  #diagnose: Diagnose = () => undefined
  #closed = false

  constructor(options: AcpOptions) {
    const mark = options.folder === undefined ? {} : markOf(options.folder)
    const env = { ...childEnvironment(options), ...mark }
    const { cwd, folder } = options
    this.#reaped = folder === undefined ? Promise.resolve() : killOrphans(folder)
    // Where its sessions work each of them is told. Gemini CLI 0.61 tidies up where it is started,
    // and its own loaded sessions with it.
    const diagnose: Diagnose = (...told) => this.#diagnose(...told)
    this.#settings = { ...ACP_DEFAULTS, ...options, env, startIn: cwd ?? folder, diagnose }
  }

  reportTo(diagnose: Diagnose): void {
    this.#diagnose = diagnose
  }

  run(turn: RunnerTurn, context: RunnerContext): AsyncGenerator<RunnerOutput, undefined> {
    const outbox = new Outbox()
    const { id } = context.session
    const before = this.#working.get(id) ?? Promise.resolve()
    const work = before
      .then(() => this.#carryOut(turn, context, outbox))
      .then(
        () => outbox.end(),
        (error: unknown) => outbox.end(error),
      )
    this.#working.set(id, work)
    void work.then(() => {
      if (this.#working.get(id) === work) this.#working.delete(id)
    })
    return outbox.read()
  }

  async release({ id }: RunnerSession): Promise<void> {
    this.#openedAt.delete(id)
    if (!this.#settings.perSession) return this.#hosts.get('')?.agent?.forget(id)
    const host = this.#hosts.get(id)
    this.#hosts.delete(id)
    await host?.stop()
  }

  lose(session: string | null): void {
    if (session === null) return this.#hosts.forEach((host) => host.kill())
    if (this.#settings.perSession) return this.#hosts.get(session)?.kill()
    // Others are at work in that child: the turn is cancelled, and what it knows is forgotten.
    this.#hosts
      .get('')
      ?.agent?.forget(session)
      .catch(() => undefined)
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#hosts.values()].map((host) => host.stop()))
    await Promise.all(this.#working.values())
    if (this.#settings.folder !== undefined) await killOwn(this.#settings.folder)
  }

  async #carryOut(turn: RunnerTurn, context: RunnerContext, outbox: Outbox): Promise<void> {
    const { signal, session } = context
    const cwd = await this.#cwd(session.id)
    signal.throwIfAborted()
    const host = this.#host(session.id)
    try {
      const agent = await host.acquire(signal)
      try {
        await this.#prompt(agent, turn, { context, outbox, cwd })
      } finally {
        host.giveBack()
      }
    } catch (error) {
      if (error instanceof AgentGone) outbox.push(diagnosis(error))
      throw error
    }
  }

  async #prompt(
    agent: AcpAgent,
    turn: RunnerTurn,
    { context, outbox, cwd }: { context: RunnerContext; outbox: Outbox; cwd: string },
  ): Promise<void> {
    const { id, backend } = context.session
    const isForgetful = backend === null && !agent.isRestorable && !agent.has(id)
    if (isForgetful && (await isBegun(context))) outbox.push(contextLost())
    if (!agent.has(id)) await this.#waitToReopen(context, outbox)
    const request = { backend, cwd, lastAnswer: () => lastAnswer(context) }
    const sessionId = await unlessAborted(agent.open(id, request), context.signal)
    const run = new PromptRun({ agent, sessionId, context, outbox, settings: this.#settings })
    try {
      await run.prompt(turn.text)
    } catch (error) {
      // The next turn opens it again.
      if (error instanceof AgentError && error.isUnknownSession) await agent.forget(id)
      throw error
    }
  }

  /** Some agents must not open a session again too soon; the log says why nothing happens. */
  async #waitToReopen(context: RunnerContext, outbox: Outbox): Promise<void> {
    const { reopenMs } = this.#settings
    const { id, backend } = context.session
    if (reopenMs === 0) return
    const ms = reopenMs - (await this.#sinceOpened(id, context))
    if (backend !== null && ms > 0) {
      const reason = 'the agent cannot open a session again so soon'
      outbox.push({ type: 'activity', kind: 'waiting', data: { reason, ms } })
      await wait(ms, context.signal)
    }
    for (const [session, at] of this.#openedAt) {
      if (performance.now() - at >= reopenMs) this.#openedAt.delete(session)
    }
    this.#openedAt.set(id, performance.now())
  }

  /**
   * How long ago it was opened: by the monotonic clock if that was here; else, since its last
   * message, by the time of its log, which is the same on all nodes and never runs backwards.
   */
  async #sinceOpened(id: string, context: RunnerContext): Promise<number> {
    const openedAt = this.#openedAt.get(id)
    if (openedAt !== undefined) return performance.now() - openedAt
    return context.now() - (await lastMessageAt(context))
  }

  /** Where a session's agent works. */
  async #cwd(session: string): Promise<string> {
    const { cwd, folder } = this.#settings
    // I2: what an earlier server left running is gone before anything begins.
    await this.#reaped
    if (cwd !== undefined || folder === undefined) return resolve(cwd ?? '.')
    return sessionFolder(folder, session)
  }

  #host(session: string): Host {
    if (this.#closed) throw new HoldfastError('draining', 'the agents are being stopped')
    const { perSession } = this.#settings
    const name = perSession ? session : ''
    const known = this.#hosts.get(name)
    if (known?.isOccupied) return known
    if (perSession) this.#makeRoom()
    const host = known ?? new Host(this.#settings)
    this.#hosts.set(name, host)
    return host
  }

  /** Stops the child that has been idle longest, if there are as many as there may be. */
  #makeRoom(): void {
    const { childrenMax } = this.#settings
    for (const [name, host] of this.#hosts) if (host.isUnused) this.#hosts.delete(name)
    const occupied = [...this.#hosts.values()].filter(({ isOccupied }) => isOccupied)
    if (occupied.length < childrenMax) return
    const idle = occupied.filter(({ isIdle }) => isIdle)
    const [oldest] = idle.sort((one, other) => one.usedAt - other.usedAt)
    if (oldest !== undefined) return void oldest.stop()
    throw new HoldfastError('too_many', `${childrenMax} agents are at work: try again later`)
  }
}

/** Whether anything was said in the session before this turn. */
async function isBegun(context: RunnerContext): Promise<boolean> {
  for await (const _ of context.history()) return true
  return false
}

async function lastMessageAt(context: RunnerContext): Promise<number> {
  let last = 0
  for await (const { at } of context.history()) last = at
  return last
}

async function lastAnswer(context: RunnerContext): Promise<string> {
  let last = ''
  for await (const { role, text } of context.history()) if (role === 'assistant') last = text
  return last
}

function contextLost(): RunnerOutput {
  const reason =
    'the agent has ended since and cannot load its sessions: it knows nothing of before'
  return { type: 'activity', kind: 'context_lost', data: { reason } }
}

function diagnosis({ message, end, stderr }: AgentGone): RunnerOutput {
  const { code = null, signal = null } = end ?? {}
  const data = { code, signal, failure: message, stderr: stderr.trim() }
  return { type: 'activity', kind: 'diagnosis', data }
}
