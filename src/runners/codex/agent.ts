/**
 * A child that runs `codex app-server`: its handshake, the threads that it has open, and the turns
 * that run in them. When the child ends, all pending requests fail.
 */
import type { RunnerContext, RunnerOutput, Settings } from '../../core/index.ts'
import { onAbort } from '../../platform/clock.ts'
import type { Child, Workplace } from '../../platform/child.ts'
import type { ChildFolders } from '../../platform/isolation.ts'
import { backendLost } from '../agent-gone.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import type { PooledAgent } from '../agent-pool.ts'
import { activity } from '../outbox.ts'
import { AgentError, Connection } from './connection.ts'
import type { CodexSettings } from './options.ts'
import { denialsIn, refusalsIn } from './refusals.ts'
import {
  threadOf,
  threadParams,
  turnParams,
  type Defaults,
  type Thread,
  type Workspace,
} from './params.ts'
import type { TurnRun } from './turn.ts'

/** It is no loss: the next turn tries again. */
const HAS_OTHER_WRITER =
  'another process of Codex has the conversation open: leave it there and try again (if it is ' +
  'its background server, run: codex app-server daemon stop)'

/** What one turn is run with. */
export type TurnRequest = {
  readonly input: readonly object[]
  readonly settings: Settings
  readonly workspace: Workspace
  readonly run: TurnRun
  readonly signal: AbortSignal
  readonly record: (output: RunnerOutput) => void
  readonly onAccepted: () => void
}

export class CodexAgent implements PooledAgent {
  readonly isRestorable = true
  readonly ended: Promise<unknown>
  /** The MCP servers that it was started for, as text. */
  readonly servers: string
  /** The models that it offers. */
  models: readonly string[] = []
  readonly #settings: CodexSettings
  readonly #child: Child
  /** In which it keeps its threads. */
  readonly #home: string
  readonly #connection: Connection
  /** By our session. */
  readonly #threads = new Map<string, Promise<Thread>>()
  /** By thread. */
  readonly #runs = new Map<string, TurnRun>()
  #defaults: Defaults = {}
  /** Refusals up to this time are recorded. */
  #refusedAt = ''
  #stopping: Promise<void> | null = null

  constructor(
    workplace: Workplace,
    settings: CodexSettings,
    { folders, servers }: { readonly folders: ChildFolders; readonly servers: string },
  ) {
    this.#settings = settings
    this.servers = servers
    const env = workplace.environment(folders)
    this.#home = env['CODEX_HOME'] ?? env['HOME'] ?? '/'
    this.#child = workplace.start(settings.args, folders)
    this.#connection = new Connection(this.#child, {
      notification: (method, params) => this.#run(params)?.notification(method, params),
      request: (method, params) =>
        this.#run(params)?.request(method, params) ?? Promise.resolve(undefined),
      room: async () => {
        for (const run of this.#runs.values()) await run.room()
      },
    })
    this.ended = this.#connection.ended
  }

  get isAlive(): boolean {
    return this.#stopping === null && this.#child.isRunning
  }

  async handshake(): Promise<void> {
    try {
      await this.#ask('initialize', {
        clientInfo: { name: 'holdfast', title: 'Holdfast', version: '0.1.0' },
        // Instructions and the plan mode are given by fields that need it.
        capabilities: { experimentalApi: true, requestAttestation: false },
      })
      this.#connection.notify('initialized')
      const { config } = await this.#ask('config/read', { includeLayers: false })
      this.#defaults = { ...asObject(config), mode: this.#settings.mode }
      await this.#listModels()
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /** Opens a session's thread by its id; or starts one, as a copy if the session is a fork. */
  open({ id, backend, origin }: RunnerContext['session'], params: Workspace): Promise<Thread> {
    const known = this.#threads.get(id)
    if (known !== undefined) return known
    const source = backend ?? origin?.backend ?? null
    const lastTurnId = asObject(origin?.position)['turn']
    const opening =
      source === null
        ? this.#begin('thread/start', {}, params)
        : backend === null
          ? this.#continue('thread/fork', { threadId: source, lastTurnId }, params)
          : this.#continue('thread/resume', { threadId: backend }, params)
    this.#threads.set(id, opening)
    // The waiting turn fails too; the next one tries again.
    opening.catch(() => this.#threads.delete(id))
    return opening
  }

  /**
   * Runs one turn to its end. When the signal aborts, Codex is asked to interrupt it, and killed if
   * it has not done so within `cancelMs`.
   */
  async turn(thread: Thread, request: TurnRequest): Promise<void> {
    const { run, signal, input, settings, workspace, onAccepted } = request
    signal.throwIfAborted()
    const { memoryBytesMax, cancelMs } = this.#settings
    this.#runs.set(thread.id, run)
    const endSampling = this.#child.limitMemory(memoryBytesMax, (problem) => this.kill(problem))
    let timer: NodeJS.Timeout | undefined
    const ignoreAbort = onAbort(signal, () => {
      timer = setTimeout(() => this.#child.kill(), cancelMs)
      this.#interrupt(thread.id, run)
    })
    try {
      const params = turnParams(thread, { settings, workspace, defaults: this.#defaults })
      await this.#connection.request('turn/start', { ...params, input }, ({ turn }) => {
        run.id = asText(asObject(turn)['id'])
        if (signal.aborted) this.#interrupt(thread.id, run)
        onAccepted()
      })
      await Promise.race([run.ended, this.#connection.lost])
      await this.#reportRefusals(thread, request)
    } finally {
      endSampling()
      clearTimeout(timer)
      ignoreAbort()
      this.#runs.delete(thread.id)
    }
  }

  /** Gives a running turn another message; false if it does not take it. */
  async steer({ id }: Thread, run: TurnRun, input: readonly object[]): Promise<boolean> {
    const params = { threadId: id, expectedTurnId: run.id, input }
    try {
      await this.#connection.request('turn/steer', params)
      return true
    } catch {
      // The turn has ended, or the child: the message was not taken.
      return false
    }
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#child.dismiss()
    return this.#stopping
  }

  kill(problem: string): void {
    this.#child.problem ??= problem
    this.#child.kill()
  }

  async #begin(method: string, named: object, params: Workspace): Promise<Thread> {
    return threadOf(await this.#ask(method, { ...named, ...threadParams(params, this.#defaults) }))
  }

  async #continue(
    method: string,
    named: { readonly threadId: string; readonly lastTurnId?: unknown },
    params: Workspace,
  ): Promise<Thread> {
    try {
      return await this.#begin(method, { ...named, excludeTurns: true }, params)
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      throw error.message.includes('active writer')
        ? new Error(HAS_OTHER_WRITER)
        : backendLost(named.threadId, error.message)
    }
  }

  /** Only for what is offered to clients: a failure does no harm. */
  async #listModels(): Promise<void> {
    const { data } = await this.#ask('model/list', {}).catch((error: unknown): JsonObject => {
      if (error instanceof AgentError) return {}
      throw error
    })
    this.models = asList(data).map((model) => asText(asObject(model)['model']))
  }

  #interrupt(threadId: string, run: TurnRun): void {
    if (run.id === null) return
    // If it fails, the child is killed after `cancelMs`.
    this.#connection.request('turn/interrupt', { threadId, turnId: run.id }).catch(() => undefined)
  }

  #run(params: JsonObject): TurnRun | undefined {
    return this.#runs.get(asText(params['threadId']))
  }

  async #reportRefusals({ path }: Thread, { record }: TurnRequest): Promise<void> {
    const refused = refusalsIn(this.#child.stderr).filter(({ at }) => at > this.#refusedAt)
    this.#refusedAt = refused.at(-1)?.at ?? this.#refusedAt
    if (refused.length === 0) return
    const denials = await denialsIn({ path, home: this.#home }, refused)
    record(activity('permission_denied', denials))
  }

  /** A request that must be answered within `startMs`; else the child is killed. */
  async #ask(method: string, params: object): Promise<JsonObject> {
    const { startMs } = this.#settings
    const problem = `did not answer ${method} within ${startMs} ms`
    const timer = setTimeout(() => this.kill(problem), startMs)
    try {
      return await this.#connection.request(method, params)
    } finally {
      clearTimeout(timer)
    }
  }
}
