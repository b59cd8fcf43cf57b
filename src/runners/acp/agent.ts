/**
 * A child that speaks the Agent Client Protocol over stdio: its handshake, its sessions, and the
 * prompts that run in them. It is offered no file system and no terminal.
 *
 * Its updates go to the prompt that runs in their session. The replay of a loaded session, and
 * updates after the end of a prompt, are dropped. When the child ends, all pending requests fail.
 */
import { basename } from 'node:path'
import { Writable } from 'node:stream'
import { HoldfastError, type Diagnose } from '../../core/index.ts'
import { Child, describeEnd, type ChildEnd } from '../../platform/child.ts'
import { redact } from '../../platform/secrets.ts'
import type { AcpUpdate } from './update-converter.ts'
import { ERROR_CHARS_MAX, GOODBYE_MS, MESSAGE_BYTES_MAX, type AcpOptions } from './options.ts'
import type { PermissionAnswer, PermissionRequest } from './permission.ts'
import { Replay } from './replay.ts'
import type { Sdk } from './sdk.ts'
import { observed, type WireListener } from './wire.ts'

/** Receives what the agent sends during a prompt. */
export interface PromptListener {
  update(update: AcpUpdate): void
  permission(request: PermissionRequest): Promise<PermissionAnswer>
  /** Resolves when it can accept more. */
  room(): Promise<void>
}

/** A session to be opened, by the agent's own id if it has one. */
export type OpenRequest = {
  readonly backend: string | null
  readonly cwd: string
  /** The last answer in our log: a replay is complete when it has repeated it. */
  readonly lastAnswer: () => Promise<string>
}

export type PromptResponse = { readonly stopReason: string; readonly usage?: unknown }

export type AgentSettings = Pick<AcpOptions, 'command' | 'args'> & {
  /** The working folder of the child; each session has another. */
  readonly startIn: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly startMs: number
  readonly cancelMs: number
  readonly memoryBytesMax: number
  readonly diagnose: Diagnose
}

/** The child has ended: how, and the end of its stderr. */
export class AgentGone extends Error {
  readonly end: ChildEnd | null
  readonly stderr: string

  constructor(message: string, { end, stderr }: Pick<Child, 'end' | 'stderr'>) {
    super(message)
    this.end = end
    this.stderr = stderr
  }
}

const AUTH_REQUIRED = -32_000
const NOT_FOUND = -32_002

type AcpConnection = ReturnType<ReturnType<Sdk['client']>['connect']>

export class AcpAgent implements WireListener {
  readonly #settings: AgentSettings
  readonly #child: Child
  readonly #connection: AcpConnection
  readonly #prompts = new Map<string, PromptListener>()
  readonly #replays = new Map<string, Replay>()
  /** The agent's session ids by ours, from the moment they are requested. */
  readonly #sessions = new Map<string, Promise<string>>()
  #canLoad = false
  #canResume = false
  #canClose = false
  #loginHint = ''
  /** Why it was killed, if it was. */
  #problem: string | null = null
  #stopping: Promise<void> | null = null

  /** Starts the child. It can be used after the handshake. */
  constructor(sdk: Sdk, settings: AgentSettings) {
    this.#settings = settings
    const { command, args = [], env, startIn, diagnose } = settings
    this.#child = new Child({ command, args, env, diagnose, ...(startIn && { cwd: startIn }) })
    const output = Writable.toWeb(this.#child.stdin) as WritableStream<Uint8Array>
    const limits = { maxMessageBytes: MESSAGE_BYTES_MAX }
    this.#connection = sdk
      .client({ name: 'holdfast' })
      .onRequest('session/request_permission', ({ params }) => this.#permission(params))
      .connect(observed(sdk.ndJsonStream(output, ReadableStream.from(this.#read()), limits), this))
    // When the child ends, closing the connection fails all pending requests.
    void this.#child.ended.then(() => this.#connection.close())
    void this.#connection.closed.then(() => this.stop())
  }

  /** The handshake; a child that fails it is stopped. */
  async handshake({ PROTOCOL_VERSION }: Sdk): Promise<void> {
    try {
      await this.#initialize(PROTOCOL_VERSION)
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  get isAlive(): boolean {
    const isConnected = this.#stopping === null && !this.#connection.signal.aborted
    return isConnected && this.#child.isRunning
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  /** Resolves when the child has ended. */
  get ended(): Promise<unknown> {
    return this.#child.ended
  }

  /** Whether another child can continue this one's sessions. */
  get isRestorable(): boolean {
    return this.#canLoad || this.#canResume
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
    if (this.#canClose && this.isAlive) this.#send('session/close', { sessionId }).catch(ignore)
  }

  /**
   * Runs one prompt to its end. When the signal aborts, the agent is asked to cancel the prompt,
   * and killed if it has not done so within `cancelMs`.
   */
  async prompt(
    sessionId: string,
    text: string,
    { listener, signal }: { readonly listener: PromptListener; readonly signal: AbortSignal },
  ): Promise<PromptResponse> {
    signal.throwIfAborted()
    this.#prompts.set(sessionId, listener)
    const { cancelMs, memoryBytesMax } = this.#settings
    const endSampling = this.#child.limitMemory(memoryBytesMax, (problem) => this.kill(problem))
    let timer: NodeJS.Timeout | undefined
    const cancel = (): void => {
      // If the notification fails, the child is killed after `cancelMs`.
      this.#connection.agent.notify('session/cancel', { sessionId }).catch(ignore)
      timer = setTimeout(() => this.#child.kill(), cancelMs)
    }
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const prompt = [{ type: 'text', text }]
      return await this.#send<PromptResponse>('session/prompt', { sessionId, prompt })
    } finally {
      endSampling()
      clearTimeout(timer)
      signal.removeEventListener('abort', cancel)
      this.#prompts.delete(sessionId)
    }
  }

  update(sessionId: string, update: AcpUpdate): void {
    const listener = this.#prompts.get(sessionId) ?? this.#replays.get(sessionId)
    listener?.update(update)
  }

  promptEnded(sessionId: string): void {
    this.#prompts.delete(sessionId)
  }

  /** Stops the child: by the end of its stdin, then by signals. Resolves when it has ended. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  async #stop(): Promise<void> {
    this.#child.stdin.end()
    let timer: NodeJS.Timeout | undefined
    const goodbye = new Promise((resolve) => {
      timer = setTimeout(resolve, GOODBYE_MS)
    })
    await Promise.race([this.#child.ended, goodbye])
    clearTimeout(timer)
    await this.#child.stop()
  }

  async #initialize(protocolVersion: number): Promise<void> {
    const answer = await this.#ask<{
      protocolVersion: number
      agentCapabilities?: {
        loadSession?: boolean
        sessionCapabilities?: { resume?: unknown; close?: unknown }
      }
      authMethods?: readonly { name?: string; description?: string }[]
    }>('initialize', {
      protocolVersion,
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
      clientInfo: { name: 'holdfast', version: '0.1.0' },
    })
    if (answer.protocolVersion !== protocolVersion) {
      const command = basename(this.#settings.command)
      throw new Error(`${command} speaks ACP version ${answer.protocolVersion}, not 1`)
    }
    const { loadSession, sessionCapabilities } = answer.agentCapabilities ?? {}
    this.#canLoad = loadSession === true
    this.#canResume = isOffered(sessionCapabilities?.resume)
    this.#canClose = isOffered(sessionCapabilities?.close)
    const ways = (answer.authMethods ?? []).map(({ name, description }) => description ?? name)
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
      await this.#ask(this.#canResume ? 'session/resume' : 'session/load', request)
      if (!this.#canResume) await replay.complete(await lastAnswer(), this.#settings.startMs)
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
    const timer = setTimeout(() => {
      this.kill(`did not answer ${method} within ${startMs} ms`)
    }, startMs)
    try {
      return await this.#send<Response>(method, params)
    } finally {
      clearTimeout(timer)
    }
  }

  /** Kills the child; pending requests fail with the problem. */
  kill(problem: string): void {
    this.#problem ??= problem
    this.#child.kill()
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
    if (this.#connection.signal.aborted) {
      await this.stop()
      const { end } = this.#child
      const command = basename(this.#child.command)
      const how = this.#problem ?? (end === null ? 'has ended' : describeEnd(end))
      return new AgentGone(`${command} ${how} ${reasonOf(thrown)}`.trim(), {
        end,
        stderr: redact(this.#child.stderr, this.#settings.env),
      })
    }
    const { code, message, data } = thrown as { code?: number; message: string; data?: unknown }
    if (code === AUTH_REQUIRED) {
      const hint = this.#loginHint === '' ? '' : `: ${this.#loginHint}`
      return new AgentError(
        code,
        redact(`the agent requires a login (${message})${hint}`, this.#settings.env),
      )
    }
    const details = typeof data === 'string' ? data : (data as { details?: unknown })?.details
    const more = typeof details === 'string' ? ` (${details})` : ''
    const whole = redact(`${message}${more}`, this.#settings.env)
    const shown = whole.slice(0, ERROR_CHARS_MAX)
    return new AgentError(code ?? 0, `the agent refused ${method}: ${shown}`)
  }

  async #permission(request: PermissionRequest): Promise<{ outcome: PermissionAnswer }> {
    const listener = this.#prompts.get(request.sessionId)
    // No turn runs in that session, so nobody can be asked.
    if (listener === undefined) return { outcome: { outcome: 'cancelled' } }
    return { outcome: await listener.permission(request) }
  }

  /** Its output, read no faster than it can be recorded. */
  async *#read(): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of this.#child.stdout) {
        yield chunk as Uint8Array
        for (const listener of this.#prompts.values()) await listener.room()
      }
    } catch (error) {
      // The output of a killed child just ends.
      if (!this.#child.stdout.destroyed) throw error
    }
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

function ignore(): void {}

function lost(backend: string, why: string): HoldfastError {
  return new HoldfastError(
    'backend_lost',
    `the agent cannot open its session ${backend} again: ${why}`,
    { backend },
  )
}

/** Empty if this process closed the connection itself. */
function reasonOf(thrown: unknown): string {
  const { message } = thrown as Error
  return message === 'ACP connection closed' ? '' : `(${message.slice(0, ERROR_CHARS_MAX)})`
}

function isOffered(capability: unknown): boolean {
  return typeof capability === 'object' && capability !== null
}
