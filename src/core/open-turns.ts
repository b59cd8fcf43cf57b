/** The turns of a loaded session that are not over, and the callers that wait for their ends. */
import type { HoldfastError } from './errors.ts'
import type { SessionEvent } from './events.ts'
import { recordTurn, type TurnRecord } from './turn-record.ts'

type Waiter = {
  readonly resolve: (record: TurnRecord) => void
  readonly reject: (error: unknown) => void
}

export class OpenTurns {
  /** Of turns that were admitted since the session was loaded. */
  readonly #records = new Map<string, TurnRecord>()
  readonly #waiters = new Map<string, Waiter[]>()
  readonly #read: (turn: string) => Promise<TurnRecord>

  /** `read`: reads a turn from the log. */
  constructor(read: (turn: string) => Promise<TurnRecord>) {
    this.#read = read
  }

  follow(event: SessionEvent & { readonly turn: string }): void {
    const record = this.#records.get(event.turn) ?? null
    if (record === null && event.turn !== `t${event.seq}`) return
    this.#records.set(event.turn, recordTurn(record, event))
  }

  /** Resolves when the turn is over. */
  wait(turn: string): Promise<TurnRecord> {
    return new Promise((resolve, reject) => {
      const waiters = this.#waiters.get(turn) ?? []
      this.#waiters.set(turn, [...waiters, { resolve, reject }])
    })
  }

  /** The turn is over. */
  end(turn: string): void {
    const record = this.#records.get(turn)
    const waiters = this.#waiters.get(turn) ?? []
    this.#records.delete(turn)
    this.#waiters.delete(turn)
    for (const { resolve, reject } of waiters) {
      if (record === undefined) this.#read(turn).then(resolve, reject)
      else resolve(record)
    }
  }

  /** The session was released. */
  fail(error: HoldfastError): void {
    for (const { reject } of [...this.#waiters.values()].flat()) reject(error)
    this.#waiters.clear()
  }
}
