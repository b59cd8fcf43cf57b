/** The server as this tab uses it: the requests to its HTTP API, and the token that they carry. */
import { HttpApi } from '../client/http-api.ts'
import type { readSessionBody } from '../wire/bodies.ts'
import {
  sessionPath,
  type SessionListView,
  type SessionRowView,
  type SessionView,
} from '../wire/views.ts'
import { buttons, element, field, showDialog } from './element.ts'

export { ApiError } from '../client/http-api.ts'

export type NewSession = ReturnType<typeof readSessionBody>

export class Api extends HttpApi {
  #token = recall('token')
  #prompt: Promise<void> | null = null

  constructor() {
    // The page may be below a path of another program's server.
    super(new URL('.', location.href).href.replace(/\/$/, ''))
  }

  /** Entered once if the server requires one, and kept as long as the tab. */
  override get token(): string | null {
    return this.#token
  }

  /** Resolves when there is another token than the refused one. */
  override async renewToken(refused: string | null): Promise<boolean> {
    if (this.#token !== refused) return true
    this.#prompt ??= promptForToken(refused !== null).then((token) => {
      this.#token = token
      this.#prompt = null
      remember('token', token)
    })
    await this.#prompt
    return true
  }

  /** Empty filters do not restrict. */
  async sessions(filters: { state: string; key: string }): Promise<readonly SessionRowView[]> {
    const query = new URLSearchParams({ limit: '200' })
    for (const [name, value] of Object.entries(filters)) if (value !== '') query.set(name, value)
    return (await this.json<SessionListView>(`/v1/sessions?${query.toString()}`)).sessions
  }

  session(id: string): Promise<SessionView> {
    return this.json(sessionPath(id))
  }

  create(options: NewSession): Promise<SessionView> {
    return this.json('/v1/sessions', 'POST', options)
  }

  async link(id: string, scopes: readonly string[], expiresInMs: number): Promise<string> {
    const body = { scopes, expiresInMs }
    return (await this.json<{ url: string }>(`${sessionPath(id)}/links`, 'POST', body)).url
  }

  async cancel(id: string, turn: string): Promise<void> {
    await this.json(`${sessionPath(id)}/turns/${encodeURIComponent(turn)}`, 'DELETE')
  }

  async close(id: string): Promise<void> {
    await this.json(sessionPath(id), 'DELETE')
  }
}

function promptForToken(wasWrong: boolean): Promise<string> {
  const input = element('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'off',
    required: true,
  })
  const words = wasWrong
    ? element('p.problem', 'The server does not accept this token.')
    : element('p.muted', 'This server requires a token. It is kept until you close the tab.')
  const goOn = element('button.primary', 'Go on')
  const dialog = showDialog('Token', words, field('Token', input), buttons(goOn))
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      const token = input.value.trim()
      // Nothing on the page works without a token.
      if (token === '') return dialog.showModal()
      dialog.remove()
      resolve(token)
    })
  })
}

const PREFIX = 'holdfast-inspector:'

/** What this tab remembers; null too if storage is disabled, so that a reload asks again. */
export function recall(name: string): string | null {
  try {
    return sessionStorage.getItem(PREFIX + name)
  } catch {
    return null
  }
}

export function remember(name: string, value: string): void {
  try {
    sessionStorage.setItem(PREFIX + name, value)
  } catch {
    // Storage is disabled.
  }
}
