/** The server as this tab uses it: the requests to its HTTP API, and the token that they carry. */
import { signal } from '@preact/signals'
import { HttpApi } from '../../client/http-api.ts'
import type { readSessionBody } from '../../wire/bodies.ts'
import {
  sessionPath,
  type EventPageView,
  type OpenAskView,
  type SessionListView,
  type SessionView,
} from '../../wire/views.ts'
import { recall, remember } from './memory.ts'

export { ApiError } from '../../client/http-api.ts'

export type NewSession = ReturnType<typeof readSessionBody>

export type GrantRow = { readonly id: string; readonly label: string }

export type LinkRow = {
  readonly id: string
  readonly scopes: readonly string[]
  readonly expiresAt: number | null
  readonly uses: number | null
}

export type AgentRow = {
  readonly name: string
  readonly isDefault: boolean
  readonly capabilities: Readonly<Record<string, unknown>>
}

type TokenPrompt = { readonly wasWrong: boolean; readonly enter: (token: string) => void }

/** Set while a person has to enter a token. */
export const tokenPrompt = signal<TokenPrompt | null>(null)

/**
 * A token that `holdfast inspect` hands over in the fragment of the address, which no server sees
 * and which is taken out of the address at once.
 */
function tokenFromAddress(): string | null {
  const [, given] = /^#\/token\/([\w.~%-]+)$/.exec(location.hash) ?? []
  if (given === undefined) return null
  history.replaceState(null, '', '#/')
  try {
    const token = decodeURIComponent(given)
    remember('token', token)
    return token
  } catch {
    // It was typed: a person is asked for a token.
    return null
  }
}

export class InspectorApi extends HttpApi {
  readonly #token = signal(tokenFromAddress() ?? recall('token'))
  #entered: Promise<void> | null = null

  constructor() {
    // The page may be below a path of another program's server.
    super(new URL('.', location.href).href.replace(/\/$/, ''))
  }

  /** Entered once if the server requires one, and kept as long as the tab. */
  override get token(): string | null {
    return this.#token.value
  }

  /** Resolves when there is another token than the refused one. */
  override async renewToken(refused: string | null): Promise<boolean> {
    if (this.#token.peek() !== refused) return true
    this.#entered ??= new Promise((resolve) => {
      const enter = (token: string): void => {
        tokenPrompt.value = null
        this.#token.value = token
        this.#entered = null
        remember('token', token)
        resolve()
      }
      tokenPrompt.value = { wasWrong: refused !== null, enter }
    })
    await this.#entered
    return true
  }

  sessions(query: Readonly<Record<string, string>> | string[][]): Promise<SessionListView> {
    return this.json(`/v1/sessions?${new URLSearchParams(query).toString()}`)
  }

  session(id: string): Promise<SessionView> {
    return this.json(sessionPath(id))
  }

  create(options: NewSession): Promise<SessionView> {
    return this.json('/v1/sessions', 'POST', options)
  }

  async agents(): Promise<readonly AgentRow[]> {
    return (await this.json<{ agents: readonly AgentRow[] }>('/v1/agents')).agents
  }

  async openAsks(id: string): Promise<readonly OpenAskView[]> {
    return (await this.json<{ asks: readonly OpenAskView[] }>(`${sessionPath(id)}/asks`)).asks
  }

  async answer(session: string, ask: string, answer: unknown): Promise<void> {
    const path = `${sessionPath(session)}/asks/${encodeURIComponent(ask)}`
    await this.json(path, 'POST', { answer })
  }

  /** The page of the log that ends right before the event `before`. */
  eventsBefore(id: string, before: number): Promise<EventPageView> {
    return this.json(`${sessionPath(id)}/events?before=${before}`)
  }

  /** The page of the log behind the event `after`. */
  eventsAfter(id: string, after: number): Promise<EventPageView> {
    return this.json(`${sessionPath(id)}/events?after=${after}`)
  }

  /** The answer has the only copy of its address. */
  link(id: string, scopes: readonly string[], expiresInMs: number): Promise<{ url: string }> {
    return this.json(`${sessionPath(id)}/links`, 'POST', { scopes, expiresInMs })
  }

  async links(id: string): Promise<readonly LinkRow[]> {
    return (await this.json<{ links: readonly LinkRow[] }>(`${sessionPath(id)}/links`)).links
  }

  async revokeLink(id: string, link: string): Promise<void> {
    await this.json(`${sessionPath(id)}/links/${encodeURIComponent(link)}`, 'DELETE')
  }

  async grants(id: string): Promise<readonly GrantRow[]> {
    return (await this.json<{ grants: readonly GrantRow[] }>(`${sessionPath(id)}/grants`)).grants
  }

  async revokeGrant(id: string, grant: string): Promise<void> {
    await this.json(`${sessionPath(id)}/grants/${encodeURIComponent(grant)}`, 'DELETE')
  }

  fork(id: string, turn: string | undefined): Promise<SessionView> {
    return this.json(`${sessionPath(id)}/fork`, 'POST', { turn })
  }

  async cancel(id: string, turn: string): Promise<void> {
    await this.json(`${sessionPath(id)}/turns/${encodeURIComponent(turn)}`, 'DELETE')
  }

  /** Lets a turn run directly before another of the same principal; null: after all of them. */
  async move(id: string, turn: string, before: string | null): Promise<SessionView['queued']> {
    const path = `${sessionPath(id)}/turns/${encodeURIComponent(turn)}/move`
    return (await this.json<Pick<SessionView, 'queued'>>(path, 'POST', { before })).queued
  }

  /** Null takes a setting back. */
  async configure(id: string, settings: Readonly<Record<string, unknown>>): Promise<void> {
    await this.json(sessionPath(id), 'PATCH', { settings })
  }

  async close(id: string): Promise<void> {
    await this.json(sessionPath(id), 'DELETE')
  }
}

/** The one that all views use. */
export const api = new InspectorApi()
