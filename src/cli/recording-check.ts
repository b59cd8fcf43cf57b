/**
 * Checks a recording of a browser client's traffic (`serve --record`): no line is missing, every
 * reply belongs to a pending command of the same session, and no session sends anything before it
 * is announced or after it is detached.
 */
import type { Findings } from '../core/index.ts'

export type RecordingLine = {
  readonly n: number
  readonly from?: 'client' | 'browser'
  readonly message?: RecordedMessage | string
  /** How many messages the server could not write in time. */
  readonly dropped?: number
}

export type RecordedMessage = {
  readonly id?: number
  readonly method?: string
  readonly sessionId?: string
  readonly params?: Readonly<Record<string, unknown>>
  readonly result?: Readonly<Record<string, unknown>>
}

export class RecordingCheck {
  readonly #problems: string[] = []
  /** Pending commands: how many of one session and id. */
  readonly #waiting = new Map<string, number>()
  readonly #sessions = new Map<string, 'announced' | 'gone'>()
  #n = 0
  #commands = 0
  /** Messages were dropped: what is missing cannot be checked any more. */
  #isTorn = false

  add(line: RecordingLine): void {
    if (line.n !== this.#n + 1) this.#bad(`line ${line.n} follows line ${this.#n}`)
    this.#n = line.n
    if (line.dropped !== undefined) this.#isTorn = true
    const { message, from } = line
    if (typeof message !== 'object' || message === null) return
    if (from === 'client') this.#command(message)
    else this.#fromBrowser(message)
  }

  #command({ id, sessionId = '' }: RecordedMessage): void {
    this.#commands += 1
    const name = `${sessionId}/${id}`
    this.#waiting.set(name, (this.#waiting.get(name) ?? 0) + 1)
  }

  #fromBrowser({ id, sessionId = '', method, params, result }: RecordedMessage): void {
    if (id !== undefined) this.#reply(id, sessionId)
    else this.#event(sessionId)
    if (method === 'Target.attachedToTarget') this.#mark(params?.['sessionId'], 'announced')
    if (method === 'Target.detachedFromTarget') this.#mark(params?.['sessionId'], 'gone')
    if (id !== undefined) this.#mark(result?.['sessionId'], 'announced')
  }

  #reply(id: number, sessionId: string): void {
    // The reply to a command for an unknown session has no session.
    const name = [`${sessionId}/${id}`, ...this.#strays(id, sessionId)].find((candidate) =>
      this.#waiting.has(candidate),
    )
    if (name === undefined) {
      if (this.#isTorn) return
      return this.#bad(`line ${this.#n} replies to ${sessionId}/${id}, which has no command`)
    }
    const left = (this.#waiting.get(name) ?? 1) - 1
    if (left === 0) this.#waiting.delete(name)
    else this.#waiting.set(name, left)
  }

  #strays(id: number, sessionId: string): readonly string[] {
    if (sessionId !== '') return []
    return [...this.#waiting.keys()].filter((name) => {
      const [session = '', asked] = name.split('/')
      return asked === String(id) && this.#sessions.get(session) !== 'announced'
    })
  }

  #event(sessionId: string): void {
    const state = this.#sessions.get(sessionId)
    if (sessionId === '' || this.#isTorn || state === 'announced') return
    const problem = state === 'gone' ? 'is gone' : 'was not announced'
    this.#bad(`line ${this.#n} is of a session that ${problem}`)
  }

  #mark(sessionId: unknown, state: 'announced' | 'gone'): void {
    if (typeof sessionId === 'string') this.#sessions.set(sessionId, state)
  }

  #bad(problem: string): void {
    if (this.#problems.length < 20) this.#problems.push(problem)
  }

  /** Pending: commands without a reply, as of a session that was detached meanwhile. */
  finish(): Findings {
    const pending = [...this.#waiting.keys()].map((name) => name.replace(/^\//, ''))
    return { events: this.#n, turns: this.#commands, problems: this.#problems, pending }
  }
}
