/**
 * A machine's process as its neighbours see it: it crashes, it is frozen and thawed, its wall clock
 * jumps. Everything that reaches it comes through `deliver`, so that a dead one hears nothing and a
 * frozen one hears it all at once, later.
 */
import type { Clock } from '../../src/core/index.ts'
import type { Random } from './random.ts'
import type { Timeline } from './timeline.ts'

/** What the wall clocks show when a world begins. */
export const BEGINNING_MS = 1_800_000_000_000

type Arrival = { readonly kind: 'timer' | 'message'; readonly run: () => void }

export class Process {
  readonly name: string
  state: 'up' | 'frozen' | 'dead' = 'up'
  /** How far its wall clock is ahead of the world's. */
  wallMs = 0
  readonly #timeline: Timeline
  readonly #random: Random
  readonly #startedAtMs: number
  readonly #timers = new Set<object>()
  readonly #arrivals: Arrival[] = []
  /** What came while it was frozen and is not taken up yet. */
  #backlog = 0
  readonly #whenDead: (() => void)[] = []

  constructor(name: string, timeline: Timeline, random: Random) {
    this.name = name
    this.#timeline = timeline
    this.#random = random
    // Two machines never agree on their monotonic clocks.
    this.#startedAtMs = random.between(0, 1_000_000)
  }

  /** What the core is given as its clock. */
  get clock(): Clock {
    return {
      now: () => BEGINNING_MS + Math.floor(this.#timeline.now) + this.wallMs,
      monotonic: () => this.#startedAtMs + this.#timeline.now,
      after: (ms, run) => this.#setTimer(ms, run),
    }
  }

  /** Timers of the core that have neither run nor been cancelled; what is due now is none. */
  get timers(): number {
    return this.#timers.size
  }

  #setTimer(ms: number, run: () => void): () => void {
    if (this.state === 'dead') return () => undefined
    const timer = { isSet: true }
    const end = (): void => {
      timer.isSet = false
      this.#timers.delete(timer)
    }
    if (ms > 0) this.#timers.add(timer)
    const cancel = this.after(ms, () => {
      // One that is due in a frozen process can still be cancelled when it thaws.
      if (!timer.isSet) return
      end()
      run()
    })
    return () => {
      end()
      cancel()
    }
  }

  /** A pause of something inside this process; it is not counted among the core's timers. */
  after(ms: number, run: () => void): () => void {
    return this.#timeline.after(ms, () => this.deliver('timer', run))
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, resolve))
  }

  /** A message does not overtake those that came while the process was frozen. */
  deliver(kind: Arrival['kind'], run: () => void): void {
    const waits = kind === 'message' && this.#backlog > 0
    if (waits) this.#timeline.after(0, () => this.#take({ kind, run }))
    else this.#take({ kind, run })
  }

  #take(arrival: Arrival): void {
    if (this.state === 'up') arrival.run()
    else if (this.state === 'frozen') this.#arrivals.push(arrival)
  }

  freeze(): void {
    if (this.state === 'up') this.state = 'frozen'
  }

  /** All that came meanwhile is there now: in any order of timers and messages. */
  thaw(): void {
    if (this.state !== 'frozen') return
    this.state = 'up'
    for (const together of this.#inOrder(this.#arrivals.splice(0))) {
      this.#backlog += 1
      this.#timeline.after(0, () => {
        this.#backlog -= 1
        for (const arrival of together) this.#take(arrival)
      })
    }
  }

  /** A timer runs by itself; messages that came in one packet are read together. */
  #inOrder(arrivals: readonly Arrival[]): readonly (readonly Arrival[])[] {
    const timers = arrivals.filter(({ kind }) => kind === 'timer').map((arrival) => [arrival])
    const messages: Arrival[][] = []
    for (const arrival of arrivals.filter(({ kind }) => kind === 'message')) {
      const packet = messages.at(-1)
      if (packet !== undefined && this.#random.chance(0.5)) packet.push(arrival)
      else messages.push([arrival])
    }
    return this.#random.chance(0.5) ? [...timers, ...messages] : [...messages, ...timers]
  }

  crash(): void {
    if (this.state === 'dead') return
    this.state = 'dead'
    this.#timers.clear()
    this.#arrivals.length = 0
    for (const tell of this.#whenDead.splice(0)) tell()
  }

  /** Called when the process dies, unless the returned function was called before. */
  whenDead(tell: () => void): () => void {
    if (this.state === 'dead') tell()
    else this.#whenDead.push(tell)
    return () => {
      const index = this.#whenDead.indexOf(tell)
      if (index >= 0) this.#whenDead.splice(index, 1)
    }
  }
}
