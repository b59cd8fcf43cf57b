/**
 * A long-lived Claude Code that serves one session, over its control protocol: JSON lines on stdin
 * and stdout. Messages and their results, and requests of both sides with their responses.
 *
 * I2: one message at a time, the next after the result of the one before or after the end of the
 * child. Output between turns is dropped; a child that starts to work without a turn is killed.
 */
import { randomUUID } from 'node:crypto'
import type { ClientTool, Settings } from '../../core/index.ts'
import { onAbort } from '../../platform/clock.ts'
import type { Child } from '../../platform/child.ts'
import { readLines } from '../../platform/text.ts'
import { AgentGone } from '../agent-gone.ts'
import type { PooledAgent } from '../agent-pool.ts'
import { asObject, asText, parsedLine, type JsonObject } from '../json.ts'
import { MessageConverter, type ClaudeOutput } from './messages.ts'
import type { ClaudeSettings } from './options.ts'
import { CLIENT_SERVER, failed, serverAnswer, type ToolResult } from './client-tools.ts'
import { deny, type PermissionAnswer } from './permission.ts'

/** The turn that a child works for. */
export interface ClaudeTurn {
  /** The id of its message, which the transcript has it by. */
  readonly prompt: string
  output(output: ClaudeOutput): void
  /** Resolves when the turn can accept more output. */
  room(): Promise<void>
  /** Decides whether a tool may be used; the signal aborts when the child takes that back. */
  permission(request: JsonObject, signal: AbortSignal): Promise<PermissionAnswer>
  /** Calls a tool of a client. */
  callTool(name: string, input: JsonObject, signal: AbortSignal): Promise<ToolResult>
}

/** The child has ended; `words` is what it said on stderr. */
export class ClaudeGone extends AgentGone {
  readonly words: string

  constructor(child: Child) {
    const [reason = ''] = child.stderr.split('\n').slice(-1)
    const words = reason === '' ? '' : `: ${reason.slice(0, MESSAGE_CHARS_MAX)}`
    super(`${child.program} ${child.describeEnd()}${words}`, child)
    this.words = child.stderr
  }
}

/** What waits for the child. */
type Pending<Value> = {
  readonly resolve: (value: Value) => void
  readonly reject: (error: Error) => void
}

type Started = {
  /** What it was started with, which cannot be changed while it runs. */
  readonly fixed: string
  readonly instructions?: string | undefined
  readonly mcpServers?: JsonObject | undefined
}

/** The longest line: it may contain a picture that a tool has read. */
const LINE_CHARS_MAX = 16_777_216
const MESSAGE_CHARS_MAX = 500

export class ClaudeAgent implements PooledAgent {
  readonly isRestorable = true
  readonly ended: Promise<unknown>
  readonly fixed: string
  /** Its slash commands, once it has started. */
  commands: unknown = []
  readonly #child: Child
  readonly #settings: ClaudeSettings
  readonly #started: Started
  readonly #converter = new MessageConverter()
  /** Our requests that are not answered. */
  readonly #requests = new Map<string, Pending<JsonObject>>()
  /** Its requests that are not answered. */
  readonly #asks = new Map<string, AbortController>()
  #turn: ClaudeTurn | null = null
  #result: Pending<void> | null = null
  /** Its modes: now, and when it started; null: not told yet. */
  #mode: string | null = null
  #firstMode: string | null = null
  #model: string | undefined
  /** Of clients, as it was told them. */
  #tools: readonly ClientTool[] = []
  #isUsed = false
  #stopping: Promise<void> | null = null
  /** It has ended, and all its output is read. */
  #gone: ClaudeGone | null = null

  constructor(child: Child, settings: ClaudeSettings, started: Started) {
    this.#child = child
    this.#settings = settings
    this.#started = started
    this.fixed = started.fixed
    this.ended = Promise.all([child.ended, this.#read()]).then(() => this.#fail())
  }

  get isAlive(): boolean {
    return this.#stopping === null && this.#child.isRunning && !this.#child.stdin.destroyed
  }

  async handshake(): Promise<void> {
    const { instructions, mcpServers } = this.#started
    const prompt = instructions === undefined ? {} : { appendSystemPrompt: instructions }
    try {
      const { commands } = await this.#ask({ subtype: 'initialize', ...prompt })
      this.commands = commands
      if (mcpServers !== undefined) await this.#setServers(mcpServers)
    } catch (error) {
      await this.stop()
      throw error
    }
  }

  /**
   * Whether it still answers. A child that was killed while it was idle may take a while to end; a
   * message to it would fail its turn.
   */
  async answers(): Promise<boolean> {
    if (!this.#isUsed) return true
    return this.#ask({ subtype: 'mcp_status' }).then(
      () => true,
      // A refusal is an answer too.
      (error: unknown) => !(error instanceof ClaudeGone),
    )
  }

  /** Sets the mode and the model, also while a turn runs. */
  async configure({ mode = this.#firstMode ?? undefined, model }: Settings): Promise<void> {
    if (mode !== undefined && mode !== this.#mode) {
      this.#firstMode ??= this.#mode ?? 'default'
      // Before the response: it tells its new mode as it tells one that it has chosen itself.
      this.#mode = mode
      await this.#ask({ subtype: 'set_permission_mode', mode })
    }
    if (model !== this.#model) {
      await this.#ask({ subtype: 'set_model', ...(model === undefined ? {} : { model }) })
      this.#model = model
    }
  }

  /** The tools that it may call from now on. It lists those of a server when that is added. */
  async offer(tools: readonly ClientTool[]): Promise<void> {
    if (JSON.stringify(tools) === JSON.stringify(this.#tools)) return
    const { mcpServers = {} } = this.#started
    if (this.#tools.length > 0) await this.#setServers(mcpServers)
    this.#tools = tools
    if (tools.length === 0) return
    const server = { type: 'sdk', name: CLIENT_SERVER }
    await this.#setServers({ ...mcpServers, [CLIENT_SERVER]: server })
  }

  async #setServers(servers: JsonObject): Promise<void> {
    await this.#ask({ subtype: 'mcp_set_servers', servers })
  }

  /**
   * Sends one message; resolves with its result. When the signal aborts, the child is interrupted,
   * and killed if it has not stopped within `cancelMs`.
   */
  async prompt(content: unknown, turn: ClaudeTurn, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    this.#isUsed = true
    this.#turn = turn
    const { cancelMs, memoryBytesMax } = this.#settings
    const endSampling = this.#child.limitMemory(memoryBytesMax, (problem) => this.kill(problem))
    let timer: NodeJS.Timeout | undefined
    const ignoreAbort = onAbort(signal, () => {
      // If it fails, the child is killed after `cancelMs`.
      this.#request({ subtype: 'interrupt' }).catch(() => undefined)
      timer = setTimeout(() => this.kill('was killed: it did not stop'), cancelMs)
    })
    try {
      const message = { role: 'user', content }
      await this.#exchange({ type: 'user', uuid: turn.prompt, message })
    } finally {
      endSampling()
      clearTimeout(timer)
      ignoreAbort()
      this.#turn = null
      this.#result = null
      for (const ask of this.#asks.values()) ask.abort()
    }
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#child.dismiss()
    return this.#stopping
  }

  kill(problem: string): void {
    this.#child.problem ??= problem
    this.#child.kill()
    // It is not used any more, although its end may be told later.
    void this.stop()
  }

  #exchange(message: object): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#gone !== null) return reject(this.#gone)
      this.#result = { resolve, reject }
      this.#send(message)
    })
  }

  #send(message: object): void {
    this.#child.stdin.write(`${JSON.stringify(message)}\n`)
  }

  /** A request that must be answered within `startMs`; else the child is killed. */
  async #ask(request: JsonObject): Promise<JsonObject> {
    const { startMs } = this.#settings
    const problem = `did not answer ${asText(request['subtype'])} within ${startMs} ms`
    const timer = setTimeout(() => this.kill(problem), startMs)
    try {
      return await this.#request(request)
    } finally {
      clearTimeout(timer)
    }
  }

  #request(request: JsonObject): Promise<JsonObject> {
    return new Promise((resolve, reject) => {
      if (this.#gone !== null) return reject(this.#gone)
      const id = randomUUID()
      this.#requests.set(id, { resolve, reject })
      this.#send({ type: 'control_request', request_id: id, request })
    })
  }

  /** Its output, read no faster than it can be recorded. */
  async #read(): Promise<void> {
    try {
      for await (const line of readLines(this.#child.output(), LINE_CHARS_MAX)) {
        this.#take(parsedLine(line))
        if (this.#turn !== null) await this.#turn.room()
      }
    } catch (error) {
      this.kill((error as Error).message)
    }
  }

  #take(line: JsonObject): void {
    switch (line['type']) {
      case 'control_response':
        return this.#response(asObject(line['response']))
      case 'control_request':
        return void this.#asked(asText(line['request_id']), asObject(line['request']))
      case 'control_cancel_request':
        return this.#asks.get(asText(line['request_id']))?.abort()
      default:
        return this.#message(line)
    }
  }

  #message(line: JsonObject): void {
    const turn = this.#turn
    if (turn === null && line['type'] === 'system' && line['subtype'] === 'init') {
      return this.kill('was killed: it worked without a turn')
    }
    for (const output of this.#converter.take(line)) {
      if (output.type === 'mode' && !this.#isNewMode(output.mode)) continue
      turn?.output(output)
    }
    if (line['type'] === 'result') this.#result?.resolve()
  }

  /** Whether the agent has changed its mode by itself. */
  #isNewMode(mode: string): boolean {
    const before = this.#mode
    this.#firstMode ??= mode
    this.#mode = mode
    return before !== null && before !== mode
  }

  #response({ request_id: id, subtype, response, error }: JsonObject): void {
    const pending = this.#requests.get(asText(id))
    this.#requests.delete(asText(id))
    if (subtype === 'success') pending?.resolve(asObject(response))
    else
      pending?.reject(new Error(`the agent refused: ${asText(error).slice(0, MESSAGE_CHARS_MAX)}`))
  }

  async #asked(id: string, request: JsonObject): Promise<void> {
    const withdrawal = new AbortController()
    this.#asks.set(id, withdrawal)
    const { signal } = withdrawal
    const answer = await this.#answerTo(request, signal)
    this.#asks.delete(id)
    if (signal.aborted) return
    const error = `Unsupported control request subtype: ${asText(request['subtype'])}`
    const outcome =
      answer === null ? { subtype: 'error', error } : { subtype: 'success', response: answer }
    this.#send({ type: 'control_response', response: { ...outcome, request_id: id } })
  }

  /** Null: it is a request that is not known. */
  async #answerTo(request: JsonObject, signal: AbortSignal): Promise<object | null> {
    const { subtype, tool_use_id: tool, server_name: server, message } = request
    if (subtype === 'can_use_tool') {
      this.#converter.asked(tool)
      return this.#decide(request, signal)
    }
    if (subtype !== 'mcp_message' || server !== CLIENT_SERVER) return null
    const call = async (name: string, input: JsonObject): Promise<ToolResult> =>
      (await this.#turn?.callTool(name, input, signal)) ?? failed('No turn is running.')
    return { mcp_response: await serverAnswer(asObject(message), this.#tools, call) }
  }

  async #decide(request: JsonObject, signal: AbortSignal): Promise<PermissionAnswer> {
    try {
      // Without a turn no client can be asked.
      const answer = await this.#turn?.permission(request, signal)
      return answer ?? deny('No turn is running.')
    } catch (error) {
      // The turn has ended, or too many asks are open: it was not allowed.
      return deny(`No person can be asked: ${(error as Error).message}`)
    }
  }

  /** Nothing that is pending will be answered. */
  #fail(): void {
    const gone = new ClaudeGone(this.#child)
    this.#gone = gone
    for (const pending of this.#requests.values()) pending.reject(gone)
    this.#requests.clear()
    this.#result?.reject(gone)
    for (const ask of this.#asks.values()) ask.abort()
  }
}
