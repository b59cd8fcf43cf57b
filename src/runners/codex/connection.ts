/**
 * JSON-RPC with a child, one message per line: its notifications and requests are handed over in
 * their order, a response is handed over before the messages after it.
 */
import type { Child } from '../../platform/child.ts'
import { readLines } from '../../platform/text.ts'
import { AgentGone } from '../agent-gone.ts'
import { asObject, asText, type JsonObject } from '../json.ts'

/** The longest line: it may contain a picture that a tool has read. */
const LINE_CHARS_MAX = 16_777_216
/** The longest message of an agent's error that is shown, in characters. */
const ERROR_CHARS_MAX = 500
const METHOD_UNKNOWN = -32_601

/** An error that the agent returned. */
export class AgentError extends Error {}

export type ConnectionHandlers = {
  notification(method: string, params: JsonObject): void
  /** Resolves with the result; undefined if the method is not known. */
  request(method: string, params: JsonObject): Promise<unknown>
  /** Resolves when more can be recorded. */
  room(): Promise<void>
}

type Pending = {
  readonly method: string
  readonly succeed: (result: JsonObject) => void
  readonly fail: (error: Error) => void
}

export class Connection {
  /** Resolves when the child has ended and its last message was handed over. */
  readonly ended: Promise<void>
  /** Rejects then, with how it ended. */
  readonly lost: Promise<never>
  readonly #child: Child
  readonly #handlers: ConnectionHandlers
  readonly #pending = new Map<number, Pending>()
  #lastId = 0
  #isOver = false

  constructor(child: Child, handlers: ConnectionHandlers) {
    this.#child = child
    this.#handlers = handlers
    this.ended = this.#read()
    this.lost = this.ended.then(() => Promise.reject(this.#gone()))
    // It is awaited only while a turn runs.
    this.lost.catch(() => undefined)
  }

  /** `take` is called with the result before any later message is handed over. */
  request(
    method: string,
    params: object,
    take: (result: JsonObject) => void = () => undefined,
  ): Promise<JsonObject> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) return reject(this.#gone())
      this.#lastId += 1
      const succeed = (result: JsonObject): void => {
        take(result)
        resolve(result)
      }
      this.#pending.set(this.#lastId, { method, succeed, fail: reject })
      this.#write({ id: this.#lastId, method, params })
    })
  }

  notify(method: string): void {
    this.#write({ method })
  }

  #write(message: object): void {
    this.#child.stdin.write(`${JSON.stringify(message)}\n`)
  }

  async #read(): Promise<void> {
    try {
      for await (const line of readLines(this.#child.output(), LINE_CHARS_MAX)) {
        this.#take(parsed(line))
        await this.#handlers.room()
      }
    } catch (error) {
      this.#child.problem ??= (error as Error).message
      this.#child.kill()
    }
    await this.#child.ended
    this.#isOver = true
    for (const { fail } of this.#pending.values()) fail(this.#gone())
    this.#pending.clear()
  }

  #take({ id, method, params, result, error }: JsonObject): void {
    if (typeof method === 'string') {
      if (id === undefined) return this.#handlers.notification(method, asObject(params))
      return void this.#answer(id, method, asObject(params))
    }
    const pending = this.#pending.get(Number(id))
    if (pending === undefined) return
    this.#pending.delete(Number(id))
    if (error === undefined || error === null) return pending.succeed(asObject(result))
    const words = this.#child.redact(asText(asObject(error)['message'])).slice(0, ERROR_CHARS_MAX)
    pending.fail(new AgentError(`the agent refused ${pending.method}: ${words}`))
  }

  async #answer(id: unknown, method: string, params: JsonObject): Promise<void> {
    // A failure is a refusal: the agent must not wait for ever.
    const result = await this.#handlers.request(method, params).catch(() => undefined)
    const error = { code: METHOD_UNKNOWN, message: `${method} is not supported` }
    this.#write(result === undefined ? { id, error } : { id, result })
  }

  #gone(): AgentGone {
    return new AgentGone(`${this.#child.program} ${this.#child.describeEnd()}`, this.#child)
  }
}

function parsed(line: string): JsonObject {
  try {
    return asObject(JSON.parse(line))
  } catch {
    // Not a message: some programs print a warning first.
    return {}
  }
}
