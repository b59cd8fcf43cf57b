/** The requests of the inspector to the HTTP API. */
import { HttpApi } from '../client/http-api.ts'
import {
  sessionPath,
  type SessionListView,
  type SessionRowView,
  type SessionView,
} from '../wire/views.ts'
import type { Access } from './access.ts'
import { serverUrl } from './address.ts'

export { ApiError } from '../client/http-api.ts'

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

export class Api extends HttpApi {
  readonly #access: Access

  constructor(access: Access) {
    super(serverUrl())
    this.#access = access
  }

  override get token(): string | null {
    return this.#access.token
  }

  protected override async renewToken(refused: string | null): Promise<boolean> {
    await this.#access.ask(refused)
    return true
  }

  async sessions({ state, key }: SessionFilter): Promise<readonly SessionRowView[]> {
    const query = new URLSearchParams({ limit: '200' })
    if (state !== '') query.set('state', state)
    if (key !== '') query.set('key', key)
    return (await this.json<SessionListView>(`/v1/sessions?${query.toString()}`)).sessions
  }

  session(id: string): Promise<SessionView> {
    return this.json(sessionPath(id))
  }

  create(options: NewSession): Promise<SessionView> {
    return this.json('/v1/sessions', 'POST', options)
  }

  /** Creates a link that admits its bearer to this session. */
  async link(id: string, scopes: readonly string[], expiresInMs: number): Promise<string> {
    const body = { scopes, expiresInMs }
    return (await this.json<{ url: string }>(`${sessionPath(id)}/links`, 'POST', body)).url
  }

  /** Cancels a turn, or a waiting request. */
  async cancel(id: string, turn: string): Promise<void> {
    await this.json(`${sessionPath(id)}/turns/${encodeURIComponent(turn)}`, 'DELETE')
  }

  async close(id: string): Promise<void> {
    await this.json(sessionPath(id), 'DELETE')
  }
}
