/**
 * Commands that take a browser a while, and nobody else is heard meanwhile: to open a page, to make
 * or dispose of a context. Of one browser session only a few are under way at a time.
 */
import type { Fault, Params } from './command.ts'
import type { CdpLimits } from './limits.ts'
import type { Link, Reply } from './link.ts'

type Waiting = {
  readonly method: string
  readonly params: Params
  /** Null: it clears away, which has to be done whoever is gone. */
  readonly read: ((reply: Reply) => void) | null
}

export class Pace {
  readonly #link: Link
  readonly #underwayMax: number
  #waiting: Waiting[] = []
  #underway = 0
  #isAsking = false

  constructor(link: Link, { openingMax }: Pick<CdpLimits, 'openingMax'>) {
    this.#link = link
    this.#underwayMax = openingMax
  }

  ask(method: string, params: Params, read: Waiting['read'] = null): void {
    this.#waiting.push({ method, params, read })
    this.#next()
  }

  #next(): void {
    // A browser that is gone answers at once, and no answer may come inside the one before.
    if (this.#isAsking) return
    this.#isAsking = true
    try {
      while (this.#underway < this.#underwayMax) {
        const next = this.#waiting.shift()
        if (next === undefined) return
        this.#begin(next)
      }
    } finally {
      this.#isAsking = false
    }
  }

  #begin({ method, params, read }: Waiting): void {
    this.#underway += 1
    this.#link.ask(method, params, (reply) => {
      this.#underway -= 1
      read?.(reply)
      this.#next()
    })
  }

  /** What somebody waits for and has not been asked yet is not asked any more. */
  refuseWaiting(error: Fault): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ read }) => read === null)
    for (const { read } of waiting) read?.({ error })
  }
}
