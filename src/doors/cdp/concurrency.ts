/**
 * Commands that block a browser for a while: opening a page, making or disposing of a context. Of
 * one browser session only a few are in progress at a time, so that other clients are served.
 */
import type { BrowserLink } from './link.ts'
import type { CdpError, CdpReply, Params, ReadReply } from './protocol.ts'

type QueuedCommand = {
  readonly method: string
  readonly params: Params
  /** Null for clean-up commands: they run even after the client has disconnected. */
  readonly read: ReadReply | null
}

export class ConcurrencyLimit {
  readonly #link: BrowserLink
  readonly #runningMax: number
  #waiting: QueuedCommand[] = []
  #running = 0
  #isStarting = false

  constructor(link: BrowserLink, runningMax: number) {
    this.#link = link
    this.#runningMax = runningMax
  }

  ask(method: string, params: Params, read: QueuedCommand['read'] = null): void {
    this.#waiting.push({ method, params, read })
    this.#start()
  }

  #start(): void {
    // A closed link answers synchronously: without this, each reply would nest in the one before.
    if (this.#isStarting) return
    this.#isStarting = true
    while (this.#running < this.#runningMax) {
      const next = this.#waiting.shift()
      if (next === undefined) break
      this.#running += 1
      const read = (reply: CdpReply): void => {
        this.#running -= 1
        next.read?.(reply)
        this.#start()
      }
      this.#link.ask(next.method, next.params, read)
    }
    this.#isStarting = false
  }

  /** Refuses the waiting commands, except clean-up commands. */
  refuseWaiting(error: CdpError): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ read }) => read === null)
    for (const { read } of waiting) read?.({ error })
  }
}
