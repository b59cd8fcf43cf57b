/**
 * One request to the upstream: limited in time, aborted with its turn; errors never show the key.
 */
import { readText } from './chunks.ts'
import { ERROR_BODY_CHARS_MAX, ERROR_CHARS_MAX, type OpenAiOptions } from './options.ts'

export type UpstreamSettings = Pick<OpenAiOptions, 'baseUrl' | 'apiKeyEnv'> & {
  readonly startMs: number
  readonly pauseMs: number
}

export class Upstream {
  readonly #settings: UpstreamSettings
  readonly #signal: AbortSignal
  readonly #abort = new AbortController()
  readonly #onAbort = (): void => this.#abort.abort(this.#signal.reason)
  #key = ''
  #timer: NodeJS.Timeout | undefined

  constructor(settings: UpstreamSettings, signal: AbortSignal) {
    this.#settings = settings
    this.#signal = signal
  }

  /** Sends a request. Throws an error for people if it fails or the status is not a success. */
  async post(path: string, request: unknown): Promise<Response> {
    this.#key = this.#readKey()
    if (this.#signal.aborted) this.#onAbort()
    else this.#signal.addEventListener('abort', this.#onAbort, { once: true })
    this.#wait(this.#settings.startMs)
    const response = await this.#fetch(path, request)
    if (response.ok) return response
    const text = response.body === null ? '' : await readText(response.body, ERROR_BODY_CHARS_MAX)
    throw this.#error(`the model's server answered ${response.status}: ${errorMessage(text)}`)
  }

  /** The chunks of the body; a pause longer than `pauseMs` ends it. */
  async *body(response: Response): AsyncGenerator<Uint8Array> {
    if (response.body === null) return
    try {
      for await (const bytes of response.body) {
        this.#wait(this.#settings.pauseMs)
        yield bytes as Uint8Array
      }
    } catch (error) {
      throw this.#problem(error)
    }
  }

  /** Closes the connection. */
  close(): void {
    clearTimeout(this.#timer)
    this.#signal.removeEventListener('abort', this.#onAbort)
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
    try {
      return await fetch(`${this.#settings.baseUrl.replace(/\/+$/, '')}${path}`, {
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

  #wait(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#abort.abort(new Error(`the model's server sent nothing for ${ms} ms`))
    }, ms)
  }

  /** Why the connection failed: `fetch` hides it behind its own error. */
  #problem(thrown: unknown): Error {
    if (this.#abort.signal.aborted) return this.#abort.signal.reason as Error
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
