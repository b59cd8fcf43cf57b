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
  readonly #sessions = new Set<string>()
  readonly #gone = new Set<string>()
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

  #fromBrowser(message: RecordedMessage): void {
    const { id, sessionId = '', method, params, result } = message
    if (id !== undefined) this.#reply(id, sessionId)
    else this.#event(sessionId)
    if (method === 'Target.attachedToTarget') this.#announce(params?.['sessionId'])
    if (method === 'Target.detachedFromTarget') this.#leave(params?.['sessionId'])
    if (id !== undefined) this.#announce(result?.['sessionId'])
  }

  #reply(id: number, sessionId: string): void {
    // The reply to a command for an unknown session has no session.
    const names = [`${sessionId}/${id}`, ...this.#strays(id, sessionId)]
    const name = names.find((candidate) => (this.#waiting.get(candidate) ?? 0) > 0)
    if (name !== undefined) return this.#settle(name)
    if (!this.#isTorn)
      this.#bad(`line ${this.#n} replies to ${sessionId}/${id}, which has no command`)
  }

  #strays(id: number, sessionId: string): readonly string[] {
    if (sessionId !== '') return []
    return [...this.#waiting.keys()].filter((name) => {
      const [session = '', asked] = name.split('/')
      return asked === String(id) && !this.#sessions.has(session)
    })
  }

  #settle(name: string): void {
    const left = (this.#waiting.get(name) ?? 1) - 1
    if (left === 0) this.#waiting.delete(name)
    else this.#waiting.set(name, left)
  }

  #event(sessionId: string): void {
    if (sessionId === '' || this.#isTorn) return
    if (this.#gone.has(sessionId)) this.#bad(`line ${this.#n} is of a session that is gone`)
    else if (!this.#sessions.has(sessionId)) {
      this.#bad(`line ${this.#n} is of a session that was not announced`)
    }
  }

  #announce(sessionId: unknown): void {
    if (typeof sessionId !== 'string') return
    this.#sessions.add(sessionId)
    this.#gone.delete(sessionId)
  }

  #leave(sessionId: unknown): void {
    if (typeof sessionId !== 'string') return
    this.#sessions.delete(sessionId)
    this.#gone.add(sessionId)
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
