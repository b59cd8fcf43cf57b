/**
 * A child that speaks the Agent Client Protocol over stdio: its handshake, its sessions, and the
 * prompts that run in them. It is offered no file system and no terminal.
 *
 * Its updates go to the prompt that runs in their session. The replay of a loaded session, and
 * updates after the end of a prompt, are dropped. When the child ends, all pending requests fail.
 */
import { Writable } from 'node:stream'
import type {
  InitializeResponse,
  RequestPermissionRequest,
  RequestPermissionResponse,
} from '@agentclientprotocol/sdk'
import { HoldfastError, type RunnerOutput } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { onAbort } from '../../platform/clock.ts'
import type { Child, Workplace } from '../../platform/child.ts'
import type { ChildFolders } from '../../platform/isolation.ts'
import { asObject } from '../json.ts'
import { observed, type Sdk } from './connection.ts'
import type { AcpSettings } from './options.ts'
import { Replay, type PromptResponse, type PromptRun } from './updates.ts'

/** A session to be opened, by the agent's own id if it has one. */
type OpenRequest = {
  readonly backend: string | null
  readonly cwd: string
  /** The last answer in our log: a replay is complete when it has repeated it. */
  readonly lastAnswer: () => Promise<string>
}

/** The child has ended; the diagnosis says how. */
export class AgentGone extends Error {
  readonly diagnosis: RunnerOutput

  constructor(message: string, child: Child) {
    super(message)
    this.diagnosis = child.diagnosis(message)
  }
}

/** An error that the agent returned, with its JSON-RPC code. */
export class AgentError extends Error {
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }

  /** The agent no longer knows the session. */
  get isUnknownSession(): boolean {
    return this.code === NOT_FOUND || /session\b.*\bnot found/i.test(this.message)
  }
}

const AUTH_REQUIRED = -32_000
const NOT_FOUND = -32_002
const MESSAGE_BYTES_MAX = 8_388_608
/** The longest message of an agent's error that is shown, in characters. */
const ERROR_CHARS_MAX = 500

export class AcpAgent {
  readonly ended: Promise<unknown>
  readonly #sdk: Sdk
  readonly #settings: AcpSettings
  readonly #child: Child
  readonly #connection: ReturnType<ReturnType<Sdk['client']>['connect']>
  readonly #prompts = new Map<string, PromptRun>()
  readonly #replays = new Map<string, Replay>()
  /** The agent's session ids by ours, from the moment they are requested. */
  readonly #sessions = new Map<string, Promise<string>>()
  #can = { load: false, resume: false, close: false }
  #loginHint = ''
  #stopping: Promise<void> | null = null

  /** Starts the child. It can be used after the handshake. */
  constructor(sdk: Sdk, workplace: Workplace, settings: AcpSettings, folders: ChildFolders) {
    this.#sdk = sdk
    this.#settings = settings
    // Not in a session's folder: Gemini CLI 0.61 cleans up where it is started, and removes its own
    // stored sessions.
    this.#child = workplace.start(settings.args, folders, settings.cwd ?? settings.folder)
    const stdin = Writable.toWeb(this.#child.stdin) as WritableStream<Uint8Array>
    const stdout = ReadableStream.from(this.#read())
    const stream = observed(
      sdk.ndJsonStream(stdin, stdout, { maxMessageBytes: MESSAGE_BYTES_MAX }),
      (id, update) => (this.#prompts.get(id) ?? this.#replays.get(id))?.update(update),
      (id) => this.#prompts.delete(id),
    )
    this.#connection = sdk
      .client({ name: 'holdfast' })
      .onRequest('session/request_permission', ({ params }) => this.#permission(params))
      .connect(stream)
    // When the child ends, closing the connection fails all pending requests.
    this.ended = this.#child.ended.then(() => this.#connection.close())
    void this.#connection.closed.then(() => this.stop())
  }

  get isAlive(): boolean {
    const isConnected = this.#stopping === null && !this.#connection.signal.aborted
    return isConnected && this.#child.isRunning
  }

  /** Whether another child can continue its sessions. */
  get isRestorable(): boolean {
    return this.#can.load || this.#can.resume
  }

  /** Whether it has this session of ours open. */
  has(session: string): boolean {
    return this.#sessions.has(session)
  }

  /** Opens a session by its earlier id, or creates one; resolves with the agent's id. */
  open(session: string, request: OpenRequest): Promise<string> {
    const known = this.#sessions.get(session)
    if (known !== undefined) return known
    const { backend, cwd } = request
    const opening = backend === null ? this.#create(cwd) : this.#restore(backend, request)
    this.#sessions.set(session, opening)
    // The waiting turn fails too; the next one tries again.
    opening.catch(() => this.#sessions.delete(session))
    return opening
  }

  /** Forgets a session; closes it in the agent, if the agent supports that. */
  async forget(session: string): Promise<void> {
    const opening = this.#sessions.get(session)
    if (opening === undefined) return
    this.#sessions.delete(session)
    const sessionId = await opening
    // A failure does no harm: the session is not used any more.
    if (this.#can.close && this.isAlive)
      this.#send('session/close', { sessionId }).catch(() => undefined)
  }

  /**
   * Runs one prompt to its end. When the signal aborts, the agent is asked to cancel the prompt,
   * and killed if it has not done so within `cancelMs`.
   */
  async prompt(
    sessionId: string,
    text: string,
    { run, signal }: { readonly run: PromptRun; readonly signal: AbortSignal },
  ): Promise<PromptResponse> {
    signal.throwIfAborted()
    this.#prompts.set(sessionId, run)
    const { cancelMs, memoryBytesMax } = this.#settings
    const endSampling = this.#child.limitMemory(memoryBytesMax, (problem) => this.kill(problem))
    let timer: NodeJS.Timeout | undefined
    const ignoreAbort = onAbort(signal, () => {
      // If the notification fails, the child is killed after `cancelMs`.
      this.#connection.agent.notify('session/cancel', { sessionId }).catch(() => undefined)
      timer = setTimeout(() => this.#child.kill(), cancelMs)
    })
    try {
      const prompt = [{ type: 'text', text }]
      return await this.#send<PromptResponse>('session/prompt', { sessionId, prompt })
    } finally {
      endSampling()
      clearTimeout(timer)
      ignoreAbort()
      this.#prompts.delete(sessionId)
    }
  }

  /** Stops the child: by the end of its stdin, then by signals. Resolves when it has ended. */
  stop(): Promise<void> {
    this.#stopping ??= this.#child.dismiss()
    return this.#stopping
  }

  /** Kills the child; pending requests fail with the problem. */
  kill(problem: string): void {
    this.#child.problem ??= problem
    this.#child.kill()
  }

  /** Resolves when the child can be used; one that fails it is stopped. */
  async handshake(): Promise<void> {
    try {
      await this.#initialize()
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  async #initialize(): Promise<void> {
    const { PROTOCOL_VERSION: wanted } = this.#sdk
    const answer = await this.#ask<InitializeResponse>('initialize', {
      protocolVersion: wanted,
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
      clientInfo: { name: 'holdfast', version: '0.1.0' },
    })
    const { protocolVersion: spoken, agentCapabilities, authMethods } = answer
    if (spoken !== wanted) {
      throw new Error(`${this.#child.program} speaks ACP version ${spoken}, not ${wanted}`)
    }
    const { loadSession, sessionCapabilities: can } = agentCapabilities ?? {}
    this.#can = {
      load: loadSession === true,
      resume: isRecord(can?.resume),
      close: isRecord(can?.close),
    }
    const ways = (authMethods ?? []).map(({ name, description }) => description ?? name)
    this.#loginHint = ways.join(', or: ').slice(0, ERROR_CHARS_MAX)
  }

  async #create(cwd: string): Promise<string> {
    const request = { cwd, mcpServers: [] }
    const { sessionId } = await this.#ask<{ sessionId: string }>('session/new', request)
    return sessionId
  }

  /** Resuming is preferred: after loading, the agent repeats the whole conversation. */
  async #restore(sessionId: string, { cwd, lastAnswer }: OpenRequest): Promise<string> {
    if (!this.isRestorable) throw lost(sessionId, 'it does not keep sessions after its end')
    const request = { sessionId, cwd, mcpServers: [] }
    const replay = new Replay()
    this.#replays.set(sessionId, replay)
    try {
      await this.#ask(this.#can.resume ? 'session/resume' : 'session/load', request)
      if (!this.#can.resume) await replay.complete(await lastAnswer(), this.#settings.startMs)
      return sessionId
    } catch (error) {
      const isRefused = error instanceof AgentError && error.code !== AUTH_REQUIRED
      throw isRefused ? lost(sessionId, error.message) : error
    } finally {
      this.#replays.delete(sessionId)
    }
  }

  /** A request that must be answered within `startMs`; else the child is killed. */
  async #ask<Response>(method: string, params: unknown): Promise<Response> {
    const { startMs } = this.#settings
    const problem = `did not answer ${method} within ${startMs} ms`
    const timer = setTimeout(() => this.kill(problem), startMs)
    try {
      return await this.#send<Response>(method, params)
    } finally {
      clearTimeout(timer)
    }
  }

  async #send<Response>(method: string, params: unknown): Promise<Response> {
    try {
      return await this.#connection.agent.request<Response>(method, params)
    } catch (error) {
      throw await this.#failure(method, error)
    }
  }

  /** Why a request failed: the agent refused it, or has ended. */
  async #failure(method: string, thrown: unknown): Promise<Error> {
    const { code = 0, message, data } = thrown as { code?: number; message: string; data?: unknown }
    if (this.#connection.signal.aborted) {
      await this.stop()
      // Without a reason, this process has closed the connection.
      const reason =
        message === 'ACP connection closed' ? '' : `(${message.slice(0, ERROR_CHARS_MAX)})`
      const { program } = this.#child
      return new AgentGone(`${program} ${this.#child.describeEnd()} ${reason}`.trim(), this.#child)
    }
    if (code === AUTH_REQUIRED) {
      const hint = this.#loginHint === '' ? '' : `: ${this.#loginHint}`
      const login = `the agent requires a login (${message})${hint}`
      return new AgentError(code, this.#child.redact(login))
    }
    const details = typeof data === 'string' ? data : asObject(data)['details']
    const more = typeof details === 'string' ? ` (${details})` : ''
    const shown = this.#child.redact(`${message}${more}`).slice(0, ERROR_CHARS_MAX)
    return new AgentError(code, `the agent refused ${method}: ${shown}`)
  }

  async #permission(request: RequestPermissionRequest): Promise<RequestPermissionResponse> {
    // Without a turn that runs in that session, no client can be asked.
    const answer = await this.#prompts.get(request.sessionId)?.permission(request)
    return { outcome: answer ?? { outcome: 'cancelled' } }
  }

  /** Its output, read no faster than it can be recorded. */
  async *#read(): AsyncGenerator<Uint8Array> {
    for await (const chunk of this.#child.output()) {
      yield chunk
      for (const run of this.#prompts.values()) await run.room()
    }
  }
}

function lost(backend: string, why: string): HoldfastError {
  const message = `the agent cannot open its session ${backend} again: ${why}`
  return new HoldfastError('backend_lost', message, { backend })
}
