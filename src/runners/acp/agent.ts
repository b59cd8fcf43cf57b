/**
 * One child that speaks the Agent Client Protocol over stdio, from its start to its end: its
 * handshake, its sessions, the prompts that run in it. It is offered no file system, no terminal.
 *
 * What it says reaches the prompt that runs in that session, and nothing else: what a loaded
 * session replays, and what comes after a prompt's end, is dropped. When it dies, all that waits
 * for it fails.
 */
import { basename } from 'node:path'
import { Writable } from 'node:stream'
import { HoldfastError, type Diagnose } from '../../core/index.ts'
import { Child, describeEnd, type ChildEnd } from '../../platform/child.ts'
import { redact } from '../../platform/secrets.ts'
import { groupMemory } from '../../platform/processes.ts'
import type { Update } from './narration.ts'
import {
  ERROR_CHARS_MAX,
  GOODBYE_MS,
  MEMORY_SAMPLE_MS,
  MESSAGE_BYTES_MAX,
  type AcpOptions,
} from './options.ts'
import type { PermissionAnswer, PermissionRequest } from './permission.ts'
import { Replay } from './replay.ts'
import type { Sdk } from './sdk.ts'
import { tapped, type WireListener } from './wire.ts'

/** Whoever runs a prompt. */
export interface PromptListener {
  update(update: Update): void
  permission(request: PermissionRequest): Promise<PermissionAnswer>
  /** Resolves when it can take more. */
  room(): Promise<void>
}

/** A session to be opened: by the agent's own id, if it had one before. */
export type OpenRequest = {
  readonly backend: string | null
  readonly cwd: string
  /** The last answer in our log: when it was said again, a session is loaded. */
  readonly lastAnswer: () => Promise<string>
}

export type PromptResponse = { readonly stopReason: string; readonly usage?: unknown }

export type AgentSettings = Pick<AcpOptions, 'command' | 'args'> & {
  /** The child's own folder; its sessions have theirs. */
  readonly startIn: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly startMs: number
  readonly cancelMs: number
  readonly memoryBytesMax: number
  readonly diagnose: Diagnose
}

/** The child is gone, or as good as: how it ended, and the end of what it said on stderr. */
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

type Connection = ReturnType<ReturnType<Sdk['client']>['connect']>

export class AcpAgent implements WireListener {
  readonly #settings: AgentSettings
  readonly #child: Child
  readonly #connection: Connection
  readonly #prompts = new Map<string, PromptListener>()
  readonly #replays = new Map<string, Replay>()
  /** The agent's session of each of ours, as soon as it is asked for. */
  readonly #sessions = new Map<string, Promise<string>>()
  #canLoad = false
  #canResume = false
  #canClose = false
  #loginHint = ''
  /** Why it was killed, if it was. */
  #problem: string | null = null
  #stopping: Promise<void> | null = null

  /** Starts the child. It is there for others once it has shaken hands. */
  constructor(sdk: Sdk, settings: AgentSettings) {
    this.#settings = settings
    const { command, args = [], env, startIn, diagnose } = settings
    this.#child = new Child({ command, args, env, diagnose, ...(startIn && { cwd: startIn }) })
    const output = Writable.toWeb(this.#child.stdin) as WritableStream<Uint8Array>
    const limits = { maxMessageBytes: MESSAGE_BYTES_MAX }
    this.#connection = sdk
      .client({ name: 'holdfast' })
      .onRequest('session/request_permission', ({ params }) => this.#permission(params))
      .connect(tapped(sdk.ndJsonStream(output, ReadableStream.from(this.#read()), limits), this))
    // Nobody speaks to a child that cannot answer: whoever waits for it learns of its end.
    void this.#child.ended.then(() => this.#connection.close())
    void this.#connection.closed.then(() => this.stop())
  }

  /** Shakes hands with the child; one that fails to is ended. */
  async shakeHands({ PROTOCOL_VERSION }: Sdk): Promise<void> {
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

  /** Resolves when the child is gone. */
  get ended(): Promise<unknown> {
    return this.#child.ended
  }

  /** Whether another child can go on with this one's sessions. */
  get isRestorable(): boolean {
    return this.#canLoad || this.#canResume
  }

  /** Whether it has this session of ours open. */
  has(session: string): boolean {
    return this.#sessions.has(session)
  }

  /** The agent's own id of a session: opened again by the id it had before, or made. */
  open(session: string, request: OpenRequest): Promise<string> {
    const known = this.#sessions.get(session)
    if (known !== undefined) return known
    const { backend, cwd } = request
    const opening = backend === null ? this.#create(cwd) : this.#restore(backend, request)
    this.#sessions.set(session, opening)
    // The turn that waits for it fails with it; the next one opens it anew.
    opening.catch(() => this.#sessions.delete(session))
    return opening
  }

  /** Lets go of a session that is closed here; the agent is told if it wants to know. */
  async forget(session: string): Promise<void> {
    const opening = this.#sessions.get(session)
    if (opening === undefined) return
    this.#sessions.delete(session)
    const sessionId = await opening
    // Whether it does is its own business, and others may be at work in it.
    if (this.#canClose && this.isAlive) this.#send('session/close', { sessionId }).catch(ignore)
  }

  /**
   * Runs one prompt to its end. When the signal is aborted the agent is asked to cancel it, and
   * killed if it has not within the time it has for that.
   */
  async prompt(
    sessionId: string,
    text: string,
    { listener, signal }: { readonly listener: PromptListener; readonly signal: AbortSignal },
  ): Promise<PromptResponse> {
    signal.throwIfAborted()
    this.#prompts.set(sessionId, listener)
    const sampling = setInterval(() => void this.#checkMemory(), MEMORY_SAMPLE_MS)
    let timer: NodeJS.Timeout | undefined
    const cancel = (): void => {
      // One that cannot be told is killed when the time is over.
      this.#connection.agent.notify('session/cancel', { sessionId }).catch(ignore)
      timer = setTimeout(() => this.#child.kill(), this.#settings.cancelMs)
    }
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const prompt = [{ type: 'text', text }]
      return await this.#send<PromptResponse>('session/prompt', { sessionId, prompt })
    } finally {
      clearInterval(sampling)
      clearTimeout(timer)
      signal.removeEventListener('abort', cancel)
      this.#prompts.delete(sessionId)
    }
  }

  update(sessionId: string, update: Update): void {
    const listener = this.#prompts.get(sessionId) ?? this.#replays.get(sessionId)
    listener?.update(update)
  }

  promptEnded(sessionId: string): void {
    this.#prompts.delete(sessionId)
  }

  /** Ends the child: by the end of its input, then by signals. Resolves when it is gone. */
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

  /** Resuming is preferred: loading has the agent say all again that is in our log already. */
  async #restore(sessionId: string, { cwd, lastAnswer }: OpenRequest): Promise<string> {
    if (!this.isRestorable) throw lost(sessionId, 'it keeps no sessions beyond its own life')
    const request = { sessionId, cwd, mcpServers: [] }
    const replay = new Replay()
    this.#replays.set(sessionId, replay)
    try {
      await this.#ask(this.#canResume ? 'session/resume' : 'session/load', request)
      if (!this.#canResume) await replay.over(await lastAnswer(), this.#settings.startMs)
      return sessionId
    } catch (error) {
      const isTold = error instanceof AgentError && error.code !== AUTH_REQUIRED
      throw isTold ? lost(sessionId, error.message) : error
    } finally {
      this.#replays.delete(sessionId)
    }
  }

  /** A request that a living agent answers soon; one that does not in time is ended. */
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

  async #checkMemory(): Promise<void> {
    const { memoryBytesMax } = this.#settings
    const bytes = await groupMemory(this.#child.pid ?? -1, this.#child.mark)
    if (bytes === null || bytes <= memoryBytesMax) return
    this.kill(`used more than ${memoryBytesMax} bytes of memory`)
  }

  /** Ends it at once, for a reason that is told to whoever waits for it. */
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

  /** Why a request failed: the agent said so, or it is gone. */
  async #failure(method: string, thrown: unknown): Promise<Error> {
    if (this.#connection.signal.aborted) {
      await this.stop()
      const { end } = this.#child
      const command = basename(this.#child.command)
      const how = this.#problem ?? (end === null ? 'is gone' : describeEnd(end))
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
        redact(`the agent wants a login first (${message})${hint}`, this.#settings.env),
      )
    }
    const details = typeof data === 'string' ? data : (data as { details?: unknown })?.details
    const more = typeof details === 'string' ? ` (${details})` : ''
    const whole = redact(`${message}${more}`, this.#settings.env)
    const said = whole.slice(0, ERROR_CHARS_MAX)
    return new AgentError(code ?? 0, `the agent refused ${method}: ${said}`)
  }

  async #permission(request: PermissionRequest): Promise<{ outcome: PermissionAnswer }> {
    const listener = this.#prompts.get(request.sessionId)
    // Nothing runs in that session: there is no turn in which somebody could be asked.
    if (listener === undefined) return { outcome: { outcome: 'cancelled' } }
    return { outcome: await listener.permission(request) }
  }

  /** Its output, read no faster than what it leads to can be recorded. */
  async *#read(): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of this.#child.stdout) {
        yield chunk as Uint8Array
        for (const listener of this.#prompts.values()) await listener.room()
      }
    } catch (error) {
      // One that was killed has just ended.
      if (!this.#child.stdout.destroyed) throw error
    }
  }
}

/** The agent's own error, by the code of JSON-RPC. */
export class AgentError extends Error {
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }

  /** The session is not open in the agent, although it was. */
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

/** Our own closing of the connection says nothing about why. */
function reasonOf(thrown: unknown): string {
  const { message } = thrown as Error
  return message === 'ACP connection closed' ? '' : `(${message.slice(0, ERROR_CHARS_MAX)})`
}

function isOffered(capability: unknown): boolean {
  return typeof capability === 'object' && capability !== null
}
