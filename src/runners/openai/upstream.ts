/**
 * One request to the upstream: limited in time, aborted with its turn; errors never show the key.
 */
import { readLines } from '../../platform/text.ts'
import { asObject, type JsonObject } from '../json.ts'
import {
  ANSWER_CHARS_MAX,
  ERROR_BODY_CHARS_MAX,
  ERROR_CHARS_MAX,
  LINE_CHARS_MAX,
  type OpenAiSettings,
} from './options.ts'

export class Upstream {
  readonly #settings: OpenAiSettings
  readonly #abort = new AbortController()
  readonly #signal: AbortSignal
  #key = ''
  #timer: NodeJS.Timeout | undefined

  constructor(settings: OpenAiSettings, signal: AbortSignal) {
    this.#settings = settings
    this.#signal = AbortSignal.any([signal, this.#abort.signal])
  }

  /**
   * Sends a request; yields the JSON objects of the answer: those of a stream, or a single one.
   * Throws an error for people if it fails or the status is not a success.
   */
  async *post(path: string, request: unknown): AsyncGenerator<JsonObject> {
    this.#key = this.#readKey()
    const response = await this.#fetch(path, request)
    if (!response.ok) {
      const text = await readText(response.body ?? [], ERROR_BODY_CHARS_MAX)
      throw this.#error(`the model's server answered ${response.status}: ${errorMessage(text)}`)
    }
    const body = this.#body(response)
    const isStream = response.headers.get('content-type')?.includes('event-stream') === true
    if (isStream) yield* readEvents(body)
    else yield parse(await readText(body, ANSWER_CHARS_MAX))
  }

  /** Closes the connection. */
  close(): void {
    clearTimeout(this.#timer)
    this.#abort.abort()
  }

  /** An error that the upstream reports within its answer. */
  reported(error: unknown): Error {
    return this.#error(`the model's server reports: ${errorMessage(JSON.stringify({ error }))}`)
  }

  #readKey(): string {
    const { apiKeyEnv } = this.#settings
    if (apiKeyEnv === undefined) return ''
    const key = process.env[apiKeyEnv] ?? ''
    if (key === '')
      throw new Error(`the variable ${apiKeyEnv}, which should contain a key, is not set`)
    return key
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
        signal: this.#signal,
        // The conversation and the key must not go to another server.
        redirect: 'error',
      })
    } catch (error) {
      throw this.#problem(error)
    }
  }

  /** The chunks of the body; a pause longer than `pauseMs` ends it. */
  async *#body({ body }: Response): AsyncGenerator<Uint8Array> {
    try {
      for await (const bytes of body ?? []) {
        this.#limitSilence(this.#settings.pauseMs)
        yield bytes
      }
    } catch (error) {
      throw this.#problem(error)
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
    if (this.#signal.aborted) return this.#signal.reason as Error
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

/** The data of server-sent events, up to `[DONE]` or the end. */
async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<JsonObject> {
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    if (!line.startsWith('data:')) continue
    const data = line.slice('data:'.length).trim()
    if (data === '[DONE]') return
    if (data !== '') yield parse(data)
  }
}

/** The first characters of a body. */
async function readText(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  charsMax: number,
): Promise<string> {
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
