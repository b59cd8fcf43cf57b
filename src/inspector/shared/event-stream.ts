/**
 * A stream of server-sent events, read by `fetch`, because an `EventSource` cannot send a token. It
 * is open while the page can be seen or it is held, and goes on where it was: browsers allow few
 * connections to one server, and all tabs share them.
 */
import { ApiError, type InspectorApi } from './server.ts'

export type StreamEvent = { readonly name: string; readonly data: unknown; readonly id: string }

type StreamOptions = {
  readonly path: string
  readonly onEvent: (event: StreamEvent) => void
  /** What came before has to be read anew: the server cannot continue from the last position. */
  readonly onRestart: () => void
  /** Null: the stream is open. */
  readonly onProblem: (problem: string | null) => void
  /** Whether it stays open while the page is hidden. */
  readonly isHeld?: () => boolean
}

const RETRY_MS = [250, 500, 1_000, 2_000, 5_000] as const
/** The server sends a heartbeat every 15 s. */
const SILENT_MS = 40_000

export class EventStream {
  readonly #api: InspectorApi
  readonly #options: StreamOptions
  #lastId = ''
  #attempt = 0
  #abort: AbortController | null = null
  #timer: ReturnType<typeof setTimeout> | undefined
  #isStopped = false

  constructor(api: InspectorApi, options: StreamOptions) {
    this.#api = api
    this.#options = options
    document.addEventListener('visibilitychange', this.#wake)
    window.addEventListener('online', this.#wake)
    window.addEventListener('offline', this.#sleep)
    this.#wake()
  }

  stop(): void {
    this.#isStopped = true
    document.removeEventListener('visibilitychange', this.#wake)
    window.removeEventListener('online', this.#wake)
    window.removeEventListener('offline', this.#sleep)
    this.#close()
  }

  /** Opens it if it should be open, and closes it if not. */
  wake(): void {
    this.#wake()
  }

  get #isAsleep(): boolean {
    return document.hidden && this.#options.isHeld?.() !== true
  }

  readonly #wake = (): void => {
    if (this.#isAsleep) return this.#close()
    if (this.#isStopped || this.#abort !== null) return
    clearTimeout(this.#timer)
    void this.#follow()
  }

  readonly #sleep = (): void => {
    this.#close()
    this.#options.onProblem('Offline')
  }

  #close(): void {
    clearTimeout(this.#timer)
    this.#abort?.abort()
    this.#abort = null
  }

  async #follow(): Promise<void> {
    const abort = new AbortController()
    this.#abort = abort
    try {
      await this.#read(abort)
    } catch (error) {
      if (abort.signal.aborted && this.#abort !== abort) return
      if (error instanceof ApiError && error.code === 'changes_gone') {
        this.#lastId = ''
        this.#options.onRestart()
      } else this.#options.onProblem(problemOf(error))
    }
    if (this.#abort !== abort) return
    this.#abort = null
    if (this.#isStopped || this.#isAsleep || !navigator.onLine) return
    const wait = RETRY_MS[Math.min(this.#attempt, RETRY_MS.length - 1)] ?? 0
    this.#attempt += 1
    this.#timer = setTimeout(this.#wake, wait * (0.5 + Math.random()))
  }

  async #read(abort: AbortController): Promise<void> {
    const headers: Record<string, string> = { accept: 'text/event-stream' }
    if (this.#lastId !== '') headers['last-event-id'] = this.#lastId
    const response = await this.#api.call(this.#options.path, { headers, signal: abort.signal })
    this.#options.onProblem(null)
    const reader = response.body?.getReader()
    if (reader === undefined) return
    const decoder = new TextDecoder()
    let rest = ''
    for (;;) {
      const silence = setTimeout(() => abort.abort(), SILENT_MS)
      const { done, value } = await reader.read().finally(() => clearTimeout(silence))
      if (done) return
      this.#attempt = 0
      const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n')
      rest = blocks.pop() ?? ''
      for (const block of blocks) this.#block(block)
    }
  }

  #block(block: string): void {
    const fields = new Map(
      block.split('\n').map((line) => {
        const [name = '', value = ''] = line.split(/: ?(.*)/s)
        return [name, value] as const
      }),
    )
    const id = fields.get('id')
    if (id !== undefined) this.#lastId = id
    const data = fields.get('data')
    if (data === undefined) return
    const event = { name: fields.get('event') ?? 'message', data: JSON.parse(data) as unknown }
    this.#options.onEvent({ ...event, id: this.#lastId })
  }
}

function problemOf(error: unknown): string {
  const words = error instanceof ApiError ? error.message : 'the connection was lost'
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`
}
