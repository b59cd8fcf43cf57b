/** The HTTP API, as far as the inspector uses it. */
import type { EventPageView, SessionRowView, SessionView } from '../wire/views.ts'
import type { SessionEvent } from '../client/index.ts'
import type { Access } from './access.ts'
import { serverUrl } from './address.ts'

/** An error of the server (a problem document), or the status 0 if it cannot be reached. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly status: number
  readonly code: string

  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

/** The options of a new session. */
export type NewSession = {
  readonly key?: string
  readonly agent?: string
  readonly reconnect: string
  readonly exclusive: boolean
  readonly graceMs?: number
  readonly internal?: boolean
}

export type SessionFilter = { readonly state: string; readonly key: string }

export class Api {
  readonly #access: Access

  constructor(access: Access) {
    this.#access = access
  }

  async sessions({ state, key }: SessionFilter): Promise<readonly SessionRowView[]> {
    const query = new URLSearchParams({ limit: '200' })
    if (state !== '') query.set('state', state)
    if (key !== '') query.set('key', key)
    const page = await this.#call('GET', `/v1/sessions?${query.toString()}`)
    return (page as { sessions: readonly SessionRowView[] }).sessions
  }

  async session(id: string): Promise<SessionView> {
    return (await this.#call('GET', sessionPath(id))) as SessionView
  }

  async create(options: NewSession): Promise<SessionView> {
    return (await this.#call('POST', '/v1/sessions', options)) as SessionView
  }

  /** Creates a link that admits its bearer to this session. */
  async link(id: string, scopes: readonly string[], expiresInMs: number): Promise<string> {
    const body = { scopes, expiresInMs }
    const link = await this.#call('POST', `${sessionPath(id)}/links`, body)
    return (link as { url: string }).url
  }

  /** Cancels a turn, or a waiting request. */
  async cancel(id: string, turn: string): Promise<void> {
    await this.#call('DELETE', `${sessionPath(id)}/turns/${encodeURIComponent(turn)}`)
  }

  async close(id: string): Promise<void> {
    await this.#call('DELETE', sessionPath(id))
  }

  /** The whole log, page by page. */
  async *events(id: string): AsyncGenerator<readonly SessionEvent[]> {
    for (let after = 0; ;) {
      const page = await this.#call('GET', `${sessionPath(id)}/events?after=${after}`)
      const { events, nextAfter, hasMore } = page as EventPageView
      yield events
      if (!hasMore) return
      after = nextAfter
    }
  }

  /** Prompts for a token if the server requires one, and tries again with it. */
  async #call(method: string, path: string, body?: unknown): Promise<unknown> {
    for (;;) {
      const { token } = this.#access
      const response = await send(method, path, { token, body })
      if (response.status !== 401) return read(response)
      await this.#access.ask(token)
    }
  }
}

function sessionPath(id: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}`
}

async function send(
  method: string,
  path: string,
  { token, body }: { readonly token: string | null; readonly body: unknown },
): Promise<Response> {
  const headers: Record<string, string> = { accept: 'application/json' }
  if (token !== null) headers['authorization'] = `Bearer ${token}`
  if (body !== undefined) headers['content-type'] = 'application/json'
  try {
    return await fetch(serverUrl() + path, { method, headers, body: JSON.stringify(body) })
  } catch {
    throw new ApiError(0, 'unreachable', 'the server cannot be reached')
  }
}

async function read(response: Response): Promise<unknown> {
  // A proxy may have answered with something else than JSON.
  const body = (await response.json().catch(() => null)) as Record<string, unknown> | null
  if (response.ok) return body
  const { code = 'internal', detail = response.statusText } = body ?? {}
  throw new ApiError(response.status, String(code), String(detail))
}
