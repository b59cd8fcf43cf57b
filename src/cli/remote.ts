/**
 * A running server, as the commands for people reach it: over HTTP, with a token if there is one.
 */
import { readFileSync } from 'node:fs'
import type { ErrorCode } from '../core/index.ts'
import type { BrowserView } from '../doors/cdp/overview.ts'
import type { SessionRowView } from '../wire/views.ts'
import { textFlag, UsageError, type Flags, type Values } from './command.ts'

export const REMOTE_FLAGS: Flags = { url: { type: 'string' }, 'token-file': { type: 'string' } }

const DEFAULT_URL = 'http://127.0.0.1:7420'

export const REMOTE_HELP = [
  ['--url URL', `where the server is; else $HOLDFAST_URL (${DEFAULT_URL})`],
  ['--token-file FILE', 'a file with the token to show; else $HOLDFAST_TOKEN'],
] as const

/** A refusal of the server, told by its code. */
export class RemoteError extends Error {
  override readonly name = 'RemoteError'
  readonly code: ErrorCode | 'unreachable'

  constructor(code: ErrorCode | 'unreachable', message: string) {
    super(message)
    this.code = code
  }
}

export type SessionPage = {
  readonly sessions: readonly SessionRowView[]
  readonly nextCursor: string | null
}

/** A browser that runs there: the view of the CDP door. */
export type RunningBrowsers = {
  /** Whose they are, where several nodes have some. */
  readonly node?: string | null
  readonly browsers: readonly BrowserView[]
}

const NO_BROWSERS: RunningBrowsers = { node: null, browsers: [] }

export class Remote {
  readonly url: string
  readonly token: string | undefined

  constructor(values: Values) {
    const url = textFlag(values, 'url') ?? (process.env['HOLDFAST_URL'] || DEFAULT_URL)
    if (!/^https?:\/\/[^/]/.test(url)) {
      throw new UsageError(`--url must begin with http:// or https://, not ${url}`)
    }
    this.url = url.replace(/\/+$/, '')
    this.token = readToken(textFlag(values, 'token-file'))
  }

  /** The answer, if it is none of a refusal. */
  async call(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers)
    if (this.token !== undefined) headers.set('authorization', `Bearer ${this.token}`)
    let answer: Response
    try {
      answer = await fetch(`${this.url}${path}`, { ...init, headers })
    } catch (error) {
      if (init.signal?.aborted === true) throw error
      throw new RemoteError('unreachable', `cannot reach ${this.url}: is holdfast serve running?`)
    }
    if (answer.ok) return answer
    throw await refusalOf(answer)
  }

  async json<Body>(path: string, init: RequestInit = {}): Promise<Body> {
    return (await (await this.call(path, init)).json()) as Body
  }

  /** Whether this token may answer questions: an answer to none tells. */
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

  list(query: Readonly<Record<string, string>>): Promise<SessionPage> {
    return this.json(`/v1/sessions?${new URLSearchParams(query).toString()}`)
  }

  /** The browsers that run there; none if it is too old to tell. */
  async browsers(): Promise<RunningBrowsers> {
    try {
      return await this.json<RunningBrowsers>('/v1/browsers')
    } catch (error) {
      if (error instanceof RemoteError && error.code === 'route_unknown') return NO_BROWSERS
      throw error
    }
  }

  /** The open session of a key, if there is one. */
  async sessionOfKey(key: string): Promise<SessionRowView | null> {
    const { sessions } = await this.list({ key, state: 'open', limit: '1' })
    return sessions[0] ?? null
  }

  /** The id of a session that was named by its id or its key; the newest one of that key. */
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
  throw new Error(`${file} must hold a token and nothing else`)
}

async function refusalOf(answer: Response): Promise<RemoteError> {
  // A proxy may have answered with something else: then the status tells.
  const problem = (await answer.json().catch(() => ({}))) as { code?: ErrorCode; detail?: string }
  const { code = 'internal', detail = `the server answered ${answer.status}` } = problem
  if (code !== 'unauthorized') return new RemoteError(code, detail)
  return new RemoteError(code, `${detail}: give one by --token-file or $HOLDFAST_TOKEN`)
}
