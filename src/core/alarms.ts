/** Commands that are due at a time: by then they may be moot, and `decide` knows. */
import type { Clock } from './clock.ts'
import type { Command } from './commands.ts'

export class Alarms {
  readonly #clock: Clock
  readonly #post: (command: Command) => Promise<unknown>
  /** How to cancel them, by the turn, ask, attachment or link that they are about. */
  readonly #cancels = new Map<string, () => void>()

  constructor(clock: Clock, post: (command: Command) => Promise<unknown>) {
    this.#clock = clock
    this.#post = post
  }

  /** Null: never. One that is about the same takes the place of the one before. */
  set(about: string, at: number | null, now: number, command: Command): void {
    this.cancel(about)
    if (at === null) return
    // A hold that is lost meanwhile is told; its next owner sets the alarm anew.
    const run = (): void => void this.#post(command).catch(() => undefined)
    this.#cancels.set(about, this.#clock.after(Math.max(0, at - now), run))
  }

  cancel(about: string): void {
    this.#cancels.get(about)?.()
    this.#cancels.delete(about)
  }

  clear(): void {
    for (const cancel of this.#cancels.values()) cancel()
    this.#cancels.clear()
  }
}
