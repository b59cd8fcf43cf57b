/** The server that a command talks to, over HTTP. */
import { readFileSync } from 'node:fs'
import { ApiError, HttpApi } from '../client/http-api.ts'
import type { BrowserView } from '../doors/cdp/door.ts'
import {
  sessionPath,
  type OpenAskListView,
  type OpenAskView,
  type SessionListView,
  type SessionRowView,
} from '../wire/views.ts'
import { text, UsageError, type FlagValues } from './command.ts'

const DEFAULT_URL = 'http://127.0.0.1:7420'

export const REMOTE_FLAGS = {
  url: text('URL', "where the server is; else the environment's HOLDFAST_URL").showing(DEFAULT_URL),
  'token-file': text('FILE', 'a file with the token to send; else HOLDFAST_TOKEN'),
}

/** The answer of `GET /v1/browsers`. */
export type RunningBrowsers = {
  /** The node that runs them, where there are several. */
  readonly node?: string | null
  readonly browsers: readonly BrowserView[]
}

const PAGE_SESSIONS = 500
/** Why a server does not tell whether a session was continued elsewhere. */
const UNTOLD = ['capability_missing', 'forbidden', 'session_closed', 'route_unknown']

/** Which sessions are wanted; null does not restrict. */
type SessionFilters = { readonly [Name in 'state' | 'key' | 'label']?: string | null }

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d*)?([/?#]|$)/i

/** `localhost:7420` is understood too. A token travels to other machines encrypted by default. */
export function withScheme(url: string): string {
  if (/^[a-z][a-z\d+.-]*:\/\//i.test(url)) return url
  return `${LOOPBACK.test(url) ? 'http' : 'https'}://${url}`
}

export class Remote extends HttpApi {
  readonly #token: string | null

  constructor(values: FlagValues<typeof REMOTE_FLAGS>) {
    const url = withScheme(values.url ?? (process.env['HOLDFAST_URL'] || DEFAULT_URL))
    if (!/^https?:\/\/[^/]/.test(url) || !URL.canParse(url)) {
      throw new UsageError(`--url must begin with http:// or https:// or a host, not ${url}`)
    }
    super(url.replace(/\/+$/, ''))
    this.#token = readToken(values['token-file'])
  }

  override get token(): string | null {
    return this.#token
  }

  override async call(path: string, init: RequestInit = {}): Promise<Response> {
    try {
      return await super.call(path, init)
    } catch (error) {
      if (!isApiError(error, 'unauthorized')) throw error
      const hint = 'pass one with --token-file or HOLDFAST_TOKEN'
      throw new ApiError(error.code, `${error.message}: ${hint}`)
    }
  }

  /** Whether the token may answer asks: an answer to an ask that does not exist shows it. */
  async mayAnswer(): Promise<boolean> {
    try {
      await this.json('/v1/sessions/none/asks/none', 'POST', { answer: null })
      return true
    } catch (error) {
      return !isApiError(error, 'forbidden')
    }
  }

  /** The newest sessions, up to the limit: all pages. */
  async sessions(filters: SessionFilters, limit: number): Promise<readonly SessionRowView[]> {
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries(filters)) {
      if (typeof value === 'string') query.set(name, value)
    }
    const found: SessionRowView[] = []
    for (;;) {
      query.set('limit', String(Math.min(PAGE_SESSIONS, limit - found.length)))
      const page = await this.json<SessionListView>(`/v1/sessions?${query.toString()}`)
      found.push(...page.sessions)
      if (page.nextCursor === null || found.length >= limit) return found
      query.set('cursor', page.nextCursor)
    }
  }

  /** The asks that wait, by a filter: all pages. */
  async *asks(filter: URLSearchParams): AsyncGenerator<OpenAskView> {
    const query = new URLSearchParams(filter)
    for (;;) {
      const page = await this.json<OpenAskListView>(`/v1/asks?${query.toString()}`)
      yield* page.asks
      if (page.nextCursor === null) return
      query.set('cursor', page.nextCursor)
    }
  }

  /**
   * How many messages the agent's own program has written to a session since its last turn, as far
   * as the server knows, and tells this caller.
   */
  async writtenOutside(id: string): Promise<number> {
    try {
      const path = `${sessionPath(id)}/terminal`
      const { writtenOutside } = await this.json<{ writtenOutside?: number | null }>(path)
      return writtenOutside ?? 0
    } catch (error) {
      if (UNTOLD.some((code) => isApiError(error, code))) return 0
      throw error
    }
  }

  /** The running browsers; none if the server is older than this route. */
  async browsers(): Promise<RunningBrowsers> {
    try {
      return await this.json<RunningBrowsers>('/v1/browsers')
    } catch (error) {
      if (isApiError(error, 'route_unknown')) return { browsers: [] }
      throw error
    }
  }

  /** The id of a session by its id or its key; the newest session of that key. */
  async find(name: string): Promise<string> {
    try {
      return (await this.json<{ id: string }>(sessionPath(name))).id
    } catch (error) {
      if (!isApiError(error, 'session_unknown')) throw error
    }
    const [session] = await this.sessions({ key: name }, 1)
    if (session !== undefined) return session.id
    throw new ApiError('session_unknown', `there is no session with the id or key ${name}`)
  }
}

function isApiError(error: unknown, code: string): error is ApiError {
  return error instanceof ApiError && error.code === code
}

function readToken(file: string | null): string | null {
  if (file === null) return process.env['HOLDFAST_TOKEN'] || null
  try {
    const token = readFileSync(file, 'utf8').trim()
    if (token !== '' && !/\s/.test(token)) return token
  } catch (error) {
    throw new Error(`cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
  throw new Error(`${file} must contain a token and nothing else`)
}
