/** The HTTP API, for the inspector and the command line. */
import type { SessionEvent } from '../wire/frames.ts'
import { sessionPath, type EventPageView } from '../wire/views.ts'
import { HoldfastClientError as ApiError } from './endings.ts'

/** An error of the server (a problem document), or `unreachable`. */
export { ApiError }

export class HttpApi {
  /** The address of the server, without a path. */
  readonly url: string

  constructor(url: string) {
    this.url = url
  }

  get token(): string | null {
    return null
  }

  /** Called with the refused token when the server requires another; true: try again. */
  protected async renewToken(_refused: string | null): Promise<boolean> {
    return false
  }

  async call(path: string, init: RequestInit = {}): Promise<Response> {
    const { token } = this
    const headers = new Headers(init.headers)
    if (token !== null) headers.set('authorization', `Bearer ${token}`)
    let response: Response
    try {
      response = await fetch(`${this.url}${path}`, { ...init, headers })
    } catch (error) {
      if (init.signal?.aborted === true) throw error
      throw new ApiError('unreachable', `cannot reach ${this.url}: is holdfast serve running?`)
    }
    if (response.ok) return response
    if (response.status === 401 && (await this.renewToken(token))) return this.call(path, init)
    // A proxy may have answered with something else than JSON.
    const problem = (await response.json().catch(() => ({}))) as { code?: string; detail?: string }
    const { code = 'internal', detail = `the server answered ${response.status}` } = problem
    throw new ApiError(code, detail)
  }

  async json<Body>(path: string, method = 'GET', body?: unknown): Promise<Body> {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { headers, body: JSON.stringify(body) }
    return (await (await this.call(path, { method, ...sent })).json()) as Body
  }

  /** The log, up to its end at the time of the last request. */
  async *events(session: string): AsyncGenerator<SessionEvent> {
    for (let after = 0; ;) {
      const page = await this.json<EventPageView>(`${sessionPath(session)}/events?after=${after}`)
      yield* page.events
      if (!page.hasMore) return
      after = page.nextAfter
    }
  }
}
