/**
 * One request to the upstream: limited in time, aborted with its turn; errors never show the key.
 */
import { onAbort, unlessAborted } from '../../platform/clock.ts'
import { readLines } from '../../platform/text.ts'
import { asObject, type JsonObject } from '../json.ts'
import type { OpenAiSettings } from './options.ts'

const LINE_CHARS_MAX = 1_048_576
/** The longest answer in one piece, and the longest body of an error, in characters. */
const ANSWER_CHARS_MAX = 8_388_608
const ERROR_BODY_CHARS_MAX = 4_096
/** The longest error message that is shown, in characters. */
const ERROR_CHARS_MAX = 500

export class Upstream {
  readonly #settings: OpenAiSettings
  readonly #abort = new AbortController()
  readonly #ignoreTurn: () => void
  readonly #key: string
  #timer: NodeJS.Timeout | undefined

  constructor(settings: OpenAiSettings, signal: AbortSignal) {
    const { apiKeyEnv } = settings
    this.#settings = settings
    this.#key = apiKeyEnv === undefined ? '' : (process.env[apiKeyEnv] ?? '')
    if (apiKeyEnv !== undefined && this.#key === '')
      throw new Error(`the variable ${apiKeyEnv}, which should contain a key, is not set`)
    this.#ignoreTurn = onAbort(signal, () => this.#abort.abort(signal.reason))
  }

  /**
   * Sends a request; yields the JSON objects of the answer: those of a stream, or a single one.
   * Throws an error for people if it fails, the status is not a success, or an object reports one.
   */
  async *post(path: string, request: unknown): AsyncGenerator<JsonObject> {
    try {
      const response = await this.#fetch(path, request)
      if (!response.ok) {
        const text = await readText(this.#body(response), ERROR_BODY_CHARS_MAX)
        throw this.#error(`the model's server answered ${response.status}: ${errorMessage(text)}`)
      }
      for await (const object of objects(response.headers, this.#body(response))) {
        const { error = null } = object
        if (error !== null) {
          const words = errorMessage(JSON.stringify({ error }))
          throw this.#error(`the model's server reports: ${words}`)
        }
        yield object
      }
    } finally {
      // Closes the connection.
      clearTimeout(this.#timer)
      this.#ignoreTurn()
      this.#abort.abort()
    }
  }

  async #fetch(path: string, request: unknown): Promise<Response> {
    const { baseUrl, startMs } = this.#settings
    this.#limitSilence(startMs)
    try {
      return await fetch(`${baseUrl.replace(/\/+$/, '')}${path}`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'text/event-stream, application/json',
          ...(this.#key === '' ? {} : { authorization: `Bearer ${this.#key}` }),
        },
        body: JSON.stringify(request),
        signal: this.#abort.signal,
        // The conversation and the key must not go to another server.
        redirect: 'error',
      })
    } catch (error) {
      throw this.#problem(error)
    }
  }

  /**
   * The chunks of the body; a pause longer than `pauseMs` ends it. The signal is listened to here
   * too, so that the end of a silent body does not depend on what `fetch` does with it.
   */
  async *#body({ body }: Response): AsyncGenerator<Uint8Array> {
    const reader = body?.getReader()
    try {
      while (reader !== undefined) {
        const { done, value } = await unlessAborted(reader.read(), this.#abort.signal)
        if (done) return
        this.#limitSilence(this.#settings.pauseMs)
        yield value
      }
    } catch (error) {
      throw this.#problem(error)
    } finally {
      // Closes the connection. A body that has failed cannot be cancelled, and need not be.
      reader?.cancel().catch(() => undefined)
    }
  }

  #limitSilence(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#abort.abort(new Error(`the model's server sent nothing for ${ms} ms`))
    }, ms)
  }

  /** Why the connection failed: `fetch` hides it behind its own error. */
  #problem(thrown: unknown): Error {
    const { signal } = this.#abort
    if (signal.aborted) return signal.reason as Error
    const { message, cause } = thrown as Error & { cause?: Error & { code?: string } }
    const { origin } = new URL(this.#settings.baseUrl)
    const why = cause?.code ?? cause?.message ?? message
    return this.#error(`the model's server at ${origin} cannot be reached, or broke off: ${why}`)
  }

  #error(message: string): Error {
    const shown = this.#key === '' ? message : message.replaceAll(this.#key, '[key]')
    return new Error(shown.slice(0, ERROR_CHARS_MAX))
  }
}

/** The data of server-sent events up to `[DONE]`, or the whole body if it is not such a stream. */
async function* objects(
  headers: Headers,
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<JsonObject> {
  if (headers.get('content-type')?.includes('event-stream') !== true) {
    return yield parse(await readText(body, ANSWER_CHARS_MAX))
  }
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    if (!line.startsWith('data:')) continue
    const data = line.slice('data:'.length).trim()
    if (data === '[DONE]') return
    if (data !== '') yield parse(data)
  }
}

/** The first characters of a body. */
async function readText(body: AsyncIterable<Uint8Array>, charsMax: number): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true })
    if (text.length > charsMax) return text.slice(0, charsMax)
  }
  return text + decoder.decode()
}

function parse(json: string): JsonObject {
  try {
    return asObject(JSON.parse(json))
  } catch {
    throw new Error('the model sent something that is no JSON')
  }
}

/** The message in an error's body, in OpenAI's format; or the whole body. */
function errorMessage(text: string): string {
  try {
    const { error, message } = JSON.parse(text) as {
      error?: string | { message?: unknown }
      message?: unknown
    }
    const found = typeof error === 'object' ? error.message : (error ?? message)
    return typeof found === 'string' ? found : text
  } catch {
    return text.trim()
  }
}
