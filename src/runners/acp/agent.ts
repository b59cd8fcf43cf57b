/**
 * A child that speaks the Agent Client Protocol over stdio: its handshake, its sessions, and the
 * prompts that run in them. It is offered the files and
 * terminals of its client, as far as that has some.
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
import type { RunnerTurn, Settings } from '../../core/index.ts'
import { onAbort } from '../../platform/clock.ts'
import type { Child, Workplace } from '../../platform/child.ts'
import type { ChildFolders } from '../../platform/isolation.ts'
import { AgentGone, backendLost, cannotFork } from '../agent-gone.ts'
import type { McpServerOptions } from '../agent-options.ts'
import type { PooledAgent } from '../agent-pool.ts'
import type { Places } from '../agent-settings.ts'
import type { FormAnswer } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { abilitiesOf, NO_ABILITIES, type Abilities } from './abilities.ts'
import {
  askClient,
  CLIENT_METHODS,
  offeredCapabilities,
  type ClientOffers,
} from './client-access.ts'
import { observed, type Sdk } from './connection.ts'
import { promptOf } from './content.ts'
import type { AcpSettings } from './options.ts'
import type { PromptRun } from './prompt.ts'
import { Conversation, Replay } from './replay.ts'
import { AcpSession, unsupported } from './session.ts'
import type { AcpUpdate, PromptResponse } from './updates.ts'

/** How many pages of its sessions an agent is asked for. */
const LIST_PAGES_MAX = 200

/** What a session is opened with. It keeps that until it is opened again. */
export type SessionBasis = Places & {
  readonly servers: readonly (readonly [string, McpServerOptions])[]
  readonly instructions: string | undefined
}

/** A session to be opened, by the agent's own id if it has one. */
type OpenRequest = {
  readonly backend: string | null
  readonly basis: SessionBasis
  /** The last answer in our log: a replay is complete when it has repeated it. */
  readonly lastAnswer: () => Promise<string>
}

type OpenSession = { readonly opening: Promise<AcpSession>; readonly basis: string }

type AgentStart = {
  readonly settings: AcpSettings
  readonly folders: ChildFolders
  readonly offers: ClientOffers
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
const EARLY_MAX = 64
/** The longest message of an agent's error that is shown, in characters. */
const ERROR_CHARS_MAX = 500

export class AcpAgent implements PooledAgent {
  abilities: Abilities = NO_ABILITIES
  /** What it is told that its client does. */
  readonly offers: ClientOffers
  readonly ended: Promise<unknown>
  readonly #sdk: Sdk
  readonly #settings: AcpSettings
  readonly #child: Child
  readonly #connection: ReturnType<ReturnType<Sdk['client']>['connect']>
  readonly #prompts = new Map<string, PromptRun>()
  readonly #replays = new Map<string, Replay>()
  /** By our session, from the moment they are requested. */
  readonly #sessions = new Map<string, OpenSession>()
  /** By the agent's id: those that are open. */
  readonly #states = new Map<string, AcpSession>()
  /** Updates of sessions that are not open yet: some come with the response that opens them. */
  readonly #early: [string, AcpUpdate][] = []
  #loginHint = ''
  #stopping: Promise<void> | null = null

  /** Starts the child. It can be used after the handshake. */
  constructor(sdk: Sdk, workplace: Workplace, { settings, folders, offers }: AgentStart) {
    this.#sdk = sdk
    this.#settings = settings
    this.offers = offers
    // Not in a session's folder: Gemini CLI 0.61 cleans up where it is started, and removes its own
    // stored sessions.
    this.#child = workplace.start(settings.args, folders, settings.cwd ?? settings.folder)
    const stdin = Writable.toWeb(this.#child.stdin) as WritableStream<Uint8Array>
    const stdout = ReadableStream.from(this.#read())
    const stream = observed(
      sdk.ndJsonStream(stdin, stdout, { maxMessageBytes: MESSAGE_BYTES_MAX }),
      (id, update) => this.#update(id, update),
      (id) => this.#prompts.delete(id),
    )
    const client = sdk
      .client({ name: 'holdfast' })
      .onRequest('session/request_permission', ({ params }) => this.#permission(params))
      .onRequest('elicitation/create', ({ params }) => this.#elicitation(params as JsonObject))
    for (const method of CLIENT_METHODS) {
      client.onRequest(method, asGiven, ({ params }) => this.#askClient(method, params))
    }
    this.#connection = client.connect(stream)
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
    return this.abilities.load || this.abilities.resume
  }

  /** Whether it has this session of ours open. */
  has(session: string): boolean {
    return this.#sessions.has(session)
  }

  /** Whether it has not opened this session of ours with another basis. */
  fits(session: string, basis: SessionBasis): boolean {
    const known = this.#sessions.get(session)
    return known === undefined || known.basis === JSON.stringify(basis)
  }

  /** Opens a session by its earlier id, or creates one. */
  open(session: string, request: OpenRequest): Promise<AcpSession> {
    const known = this.#sessions.get(session)
    if (known !== undefined) {
      if (this.fits(session, request.basis)) return known.opening
      throw unsupported('cwd, directories, mcpServers or instructions while its agent runs')
    }
    const { backend } = request
    const opening = backend === null ? this.#create(request) : this.#restore(backend, request)
    this.#sessions.set(session, { opening, basis: JSON.stringify(request.basis) })
    // The waiting turn fails too; the next one tries again.
    opening.catch(() => this.#sessions.delete(session))
    return opening
  }

  /** Forgets a session; closes it in the agent, if the agent supports that. */
  async forget(session: string): Promise<void> {
    const known = this.#sessions.get(session)
    if (known === undefined) return
    this.#sessions.delete(session)
    const { id: sessionId } = await known.opening
    this.#states.delete(sessionId)
    // A failure does no harm: the session is not used any more.
    if (this.abilities.close && this.isAlive)
      this.#send('session/close', { sessionId }).catch(() => undefined)
  }

  /** Chooses the mode and the model of a session, if they are others than now. */
  async configure(session: AcpSession, settings: Settings): Promise<void> {
    for (const { method, params, done } of session.changes(settings)) {
      await this.#ask(method, params)
      done()
    }
  }

  /** Gives the running prompt another message; false if the agent does not take it. */
  async steer({ id }: AcpSession, turn: RunnerTurn): Promise<boolean> {
    if (!this.abilities.steering) return false
    const prompt = promptOf(turn, this.abilities.prompt)
    // If no prompt runs any more, the message is ours to send.
    const steering = { idleBehavior: 'promptRequired' }
    const request = { sessionId: id, prompt, _meta: { steering } }
    try {
      const { outcome } = await this.#send<JsonObject>('_session/steering', request)
      return outcome === 'injected'
    } catch {
      // The agent refused it, or has ended: the message was not taken.
      return false
    }
  }

  /** The working folder of a session that was begun elsewhere; null: the agent does not tell. */
  async folderOf(wanted: string): Promise<string | null> {
    if (!this.abilities.list) return null
    let cursor: unknown = undefined
    for (let pages = 0; pages < LIST_PAGES_MAX; pages += 1) {
      const page = await this.#ask<JsonObject>(
        'session/list',
        cursor === undefined ? {} : { cursor },
      )
      const found = asList(page['sessions'])
        .map(asObject)
        .find((one) => one['sessionId'] === wanted)
      if (found !== undefined) return asText(found['cwd']) || null
      cursor = page['nextCursor'] ?? null
      if (cursor === null) return null
    }
    return null
  }

  /** Loads a session that was begun elsewhere, for what was said in it. */
  async read(sessionId: string, basis: SessionBasis, at: number) {
    const conversation = new Conversation(at)
    const replay = new Replay(conversation)
    this.#replays.set(sessionId, replay)
    try {
      await this.#ask('session/load', { sessionId, ...this.#basis(basis) })
      await replay.complete('', this.#settings.startMs)
      return conversation.messages
    } finally {
      this.#replays.delete(sessionId)
    }
  }

  /** Copies a session of the agent; resolves with the id of the copy. */
  async fork(sessionId: string, basis: SessionBasis): Promise<string> {
    if (!this.abilities.fork) throw cannotFork('has no forks')
    const request = { sessionId, ...this.#basis(basis) }
    const fork = await this.#ask<{ sessionId: string }>('session/fork', request)
    await this.#assertKept(fork.sessionId, basis)
    return fork.sessionId
  }

  /** Some agents keep a fork only once a prompt has run in it: no other child could open it. */
  async #assertKept(sessionId: string, basis: SessionBasis): Promise<void> {
    if (!this.abilities.close || !this.isRestorable) return
    const method = this.abilities.resume ? 'session/resume' : 'session/load'
    try {
      await this.#ask('session/close', { sessionId })
      await this.#ask(method, { sessionId, ...this.#basis(basis) })
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      throw cannotFork('keeps a fork only once a turn has run in it')
    }
  }

  /** Deletes a session that the agent keeps; false: it has no way to. */
  async delete(sessionId: string): Promise<boolean> {
    if (!this.abilities.delete) return false
    try {
      await this.#ask('session/delete', { sessionId })
    } catch (error) {
      if (!(error instanceof AgentError && error.isUnknownSession)) throw error
    }
    return true
  }

  /**
   * Runs one prompt to its end. When the signal aborts, the agent is asked to cancel the prompt,
   * and killed if it has not done so within `cancelMs`.
   */
  async prompt(
    { id: sessionId }: AcpSession,
    turn: RunnerTurn,
    { run, signal }: { readonly run: PromptRun; readonly signal: AbortSignal },
  ): Promise<PromptResponse> {
    signal.throwIfAborted()
    const prompt = promptOf(turn, this.abilities.prompt)
    this.#prompts.set(sessionId, run)
    run.recordCommands()
    const { cancelMs, memoryBytesMax } = this.#settings
    const endSampling = this.#child.limitMemory(memoryBytesMax, (problem) => this.kill(problem))
    let timer: NodeJS.Timeout | undefined
    const ignoreAbort = onAbort(signal, () => {
      // If the notification fails, the child is killed after `cancelMs`.
      this.#connection.agent.notify('session/cancel', { sessionId }).catch(() => undefined)
      timer = setTimeout(() => this.#child.kill(), cancelMs)
    })
    try {
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
      clientCapabilities: {
        ...offeredCapabilities(this.offers),
        elicitation: { form: {}, url: {} },
      },
      clientInfo: { name: 'holdfast', version: '0.1.0' },
    })
    const { protocolVersion: spoken, authMethods } = answer
    if (spoken !== wanted) {
      throw new Error(`${this.#child.program} speaks ACP version ${spoken}, not ${wanted}`)
    }
    this.abilities = abilitiesOf(answer)
    const ways = (authMethods ?? []).map(({ name, description }) => description ?? name)
    this.#loginHint = ways.join(', or: ').slice(0, ERROR_CHARS_MAX)
  }

  async #create({ basis }: OpenRequest): Promise<AcpSession> {
    const answer = await this.#ask<JsonObject>('session/new', this.#basis(basis))
    return this.#opened(String(answer['sessionId']), answer)
  }

  /** Resuming is preferred: after loading, the agent repeats the whole conversation. */
  async #restore(sessionId: string, { basis, lastAnswer }: OpenRequest): Promise<AcpSession> {
    if (!this.isRestorable) throw backendLost(sessionId, 'it does not keep sessions after its end')
    const request = { sessionId, ...this.#basis(basis) }
    const { resume } = this.abilities
    const replay = new Replay()
    this.#replays.set(sessionId, replay)
    try {
      const answer = await this.#ask<JsonObject>(
        resume ? 'session/resume' : 'session/load',
        request,
      )
      if (!resume) await replay.complete(await lastAnswer(), this.#settings.startMs)
      return this.#opened(sessionId, answer)
    } catch (error) {
      const isRefused = error instanceof AgentError && error.code !== AUTH_REQUIRED
      throw isRefused ? backendLost(sessionId, error.message) : error
    } finally {
      this.#replays.delete(sessionId)
    }
  }

  #opened(id: string, answer: JsonObject | null): AcpSession {
    const session = new AcpSession(id, asObject(answer))
    this.#states.set(id, session)
    for (const [of, update] of this.#early.splice(0)) if (of === id) session.update(update)
    return session
  }

  /** The fields of a request that opens a session. Throws for what the agent cannot honour. */
  #basis({ cwd, directories, servers, instructions }: SessionBasis): object {
    const { directories: takesMore, http, systemPrompt } = this.abilities
    if (directories.length > 0 && !takesMore) throw unsupported('directories')
    if (instructions !== undefined && !systemPrompt) throw unsupported('instructions')
    const content = [{ type: 'text', text: instructions }]
    return {
      cwd,
      mcpServers: servers.map(([name, server]) => serverOf(name, server, http)),
      ...(directories.length === 0 ? {} : { additionalDirectories: directories }),
      ...(instructions === undefined ? {} : { systemPrompt: { mode: 'append', content } }),
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

  #update(id: string, update: AcpUpdate): void {
    const target = this.#prompts.get(id) ?? this.#replays.get(id) ?? this.#states.get(id)
    if (target !== undefined) return target.update(update)
    if (this.#early.length < EARLY_MAX) this.#early.push([id, update])
  }

  async #permission(request: RequestPermissionRequest): Promise<RequestPermissionResponse> {
    // Without a turn that runs in that session, no client can be asked.
    const answer = await this.#prompts.get(request.sessionId)?.permission(request)
    return { outcome: answer ?? { outcome: 'cancelled' } }
  }

  #askClient(method: string, params: JsonObject): Promise<object> {
    const run = this.#prompts.get(String(params['sessionId']))
    return askClient(this.#sdk, run?.askClient, { method, params })
  }

  async #elicitation(request: JsonObject): Promise<FormAnswer> {
    const run = this.#prompts.get(String(request['sessionId']))
    return (await run?.elicitation(request)) ?? { action: 'cancel' }
  }

  /** Its output, read no faster than it can be recorded. */
  async *#read(): AsyncGenerator<Uint8Array> {
    for await (const chunk of this.#child.output()) {
      yield chunk
      for (const run of this.#prompts.values()) await run.room()
    }
  }
}

const asGiven = (params: unknown): JsonObject => asObject(params)

/** An MCP server as the protocol describes it. */
function serverOf(name: string, options: McpServerOptions, http: boolean): object {
  const { command, args = [], env = {}, url, headers = {} } = options
  const pairs = (values: Readonly<Record<string, string>>): object[] =>
    Object.entries(values).map(([key, value]) => ({ name: key, value }))
  if (url === undefined) return { name, command, args, env: pairs(env) }
  if (!http) throw unsupported(`mcpServers (${name}: it takes none over HTTP)`)
  return { type: 'http', name, url, headers: pairs(headers) }
}
