/**
 * Notices when the clock jumps. Timers and leases do not mind, since they follow the monotonic
 * clock; but what is stored with a time (expiry, retention, links) comes due early or late.
 */
import type { Clock } from './clock.ts'
import type { Diagnose } from './diagnostics.ts'

/** Between two looks a clock that is only being corrected does not differ by so much. */
const JUMP_MS = 2_000

export class ClockWatch {
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>
  readonly #diagnose: Diagnose
  #offset: number

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>, diagnose: Diagnose) {
    this.#clock = clock
    this.#diagnose = diagnose
    this.#offset = clock.now() - clock.monotonic()
  }

  look(): void {
    const offset = this.#clock.now() - this.#clock.monotonic()
    const ms = Math.round(offset - this.#offset)
    this.#offset = offset
    if (Math.abs(ms) < JUMP_MS) return
    const way = ms > 0 ? 'forward' : 'back'
    this.#diagnose('clock_jumped', `the clock was set ${way}, or this machine slept`, { ms })
  }
}
