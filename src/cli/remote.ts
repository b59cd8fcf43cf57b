/** The HTTP client of the commands that talk to a running server. */
import { readFileSync } from 'node:fs'
import type { ErrorCode } from '../core/index.ts'
import type { BrowserView } from '../doors/cdp/overview.ts'
import type { SessionListView, SessionRowView } from '../wire/views.ts'
import { showDefault, text, UsageError, type FlagValues } from './flags.ts'

const DEFAULT_URL = 'http://127.0.0.1:7420'

export const REMOTE_FLAGS = {
  url: showDefault(
    text('URL', "where the server is; else the environment's HOLDFAST_URL"),
    DEFAULT_URL,
  ),
  'token-file': text('FILE', 'a file with the token to send; else HOLDFAST_TOKEN'),
}

/** An error of the server, with its code. */
export class RemoteError extends Error {
  override readonly name = 'RemoteError'
  readonly code: ErrorCode | 'unreachable'

  constructor(code: ErrorCode | 'unreachable', message: string) {
    super(message)
    this.code = code
  }
}

/** The answer of `GET /v1/browsers`. */
export type RunningBrowsers = {
  /** The node that runs them, where there are several. */
  readonly node?: string | null
  readonly browsers: readonly BrowserView[]
}

const NO_BROWSERS: RunningBrowsers = { node: null, browsers: [] }

export class Remote {
  readonly url: string
  readonly token: string | undefined

  constructor(values: FlagValues<typeof REMOTE_FLAGS>) {
    const url = values.url ?? (process.env['HOLDFAST_URL'] || DEFAULT_URL)
    if (!/^https?:\/\/[^/]/.test(url)) {
      throw new UsageError(`--url must begin with http:// or https://, not ${url}`)
    }
    this.url = url.replace(/\/+$/, '')
    this.token = readToken(values['token-file'])
  }

  /** The response, if its status is a success. */
  async call(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers)
    if (this.token !== undefined) headers.set('authorization', `Bearer ${this.token}`)
    let response: Response
    try {
      response = await fetch(`${this.url}${path}`, { ...init, headers })
    } catch (error) {
      if (init.signal?.aborted === true) throw error
      throw new RemoteError('unreachable', `cannot reach ${this.url}: is holdfast serve running?`)
    }
    if (response.ok) return response
    throw await errorOf(response)
  }

  async json<Body>(path: string, init: RequestInit = {}): Promise<Body> {
    return (await (await this.call(path, init)).json()) as Body
  }

  /** Whether the token may answer asks: an answer to an ask that does not exist shows it. */
  async mayAnswer(): Promise<boolean> {
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: '{"answer":null}' }
    try {
      await this.call('/v1/sessions/none/asks/none', init)
      return true
    } catch (error) {
      return !(error instanceof RemoteError) || error.code !== 'forbidden'
    }
  }

  list(query: Readonly<Record<string, string>>): Promise<SessionListView> {
    return this.json(`/v1/sessions?${new URLSearchParams(query).toString()}`)
  }

  /** The running browsers; none if the server is older than this route. */
  async browsers(): Promise<RunningBrowsers> {
    try {
      return await this.json<RunningBrowsers>('/v1/browsers')
    } catch (error) {
      if (error instanceof RemoteError && error.code === 'route_unknown') return NO_BROWSERS
      throw error
    }
  }

  /** The open session of a key, or null. */
  async sessionOfKey(key: string): Promise<SessionRowView | null> {
    const { sessions } = await this.list({ key, state: 'open', limit: '1' })
    return sessions[0] ?? null
  }

  /** The id of a session by its id or its key; the newest session of that key. */
  async find(name: string): Promise<string> {
    try {
      return (await this.json<{ id: string }>(sessionPath(name))).id
    } catch (error) {
      const isUnknown = error instanceof RemoteError && error.code === 'session_unknown'
      if (!isUnknown) throw error
    }
    const { sessions } = await this.list({ key: name, limit: '1' })
    const [session] = sessions
    if (session !== undefined) return session.id
    throw new RemoteError('session_unknown', `there is no session with the id or key ${name}`)
  }
}

export function sessionPath(id: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}`
}

function readToken(file: string | null): string | undefined {
  if (file === null) return process.env['HOLDFAST_TOKEN'] || undefined
  try {
    const token = readFileSync(file, 'utf8').trim()
    if (token !== '' && !/\s/.test(token)) return token
  } catch (error) {
    throw new Error(`cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
  throw new Error(`${file} must contain a token and nothing else`)
}

async function errorOf(response: Response): Promise<RemoteError> {
  // A proxy may have answered with something else than JSON.
  const problem = (await response.json().catch(() => ({}))) as { code?: ErrorCode; detail?: string }
  const { code = 'internal', detail = `the server answered ${response.status}` } = problem
  if (code !== 'unauthorized') return new RemoteError(code, detail)
  return new RemoteError(code, `${detail}: pass one with --token-file or HOLDFAST_TOKEN`)
}
