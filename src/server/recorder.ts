/**
 * What the charts and `/metrics` need besides running totals: the totals at the end of each minute
 * of the last hour, whose differences are what happened in a minute, and the delay of the event
 * loop. Its memory is bounded, and no turn does anything for it.
 */
import { Histogram, type RunEnd } from '../core/index.ts'
import type { ServerContext } from '../doors/exchange.ts'

const MINUTE_MS = 60_000
const MINUTES = 60
/** Between two looks at how late the event loop is. */
const SAMPLE_MS = 20

/** How often values came between the bounds of a histogram. */
type BucketCounts = readonly number[]

/** Since the start. */
type Totals = {
  readonly turns: Readonly<Record<'started' | RunEnd, number>>
  readonly refused: number
  readonly asks: Readonly<Record<'opened' | 'settled', number>>
  /** HTTP answers with status 500 and above. */
  readonly errors: number
  readonly wait: BucketCounts
  readonly duration: BucketCounts
  readonly delay: BucketCounts
}

/** Percentiles in milliseconds; null: there was nothing. */
type Percentiles = Readonly<Record<'p50' | 'p95' | 'p99', number | null>>

/** One minute from `at` on. */
export type MinuteFigures = Omit<Totals, 'wait' | 'duration' | 'delay'> & {
  readonly at: number
  readonly wait: Percentiles
  readonly duration: Percentiles
}

type RecordedServer = Pick<ServerContext, 'holdfast' | 'answered'>

export class Recorder {
  readonly startedAt: number
  /** How late the event loop was, at moments that have nothing to do with what it does. */
  readonly delay = new Histogram()
  readonly #server: RecordedServer
  /** The totals when each minute began, oldest first; the last one goes on. */
  #minutes: { readonly at: number; readonly before: Totals }[]
  #timer: NodeJS.Timeout | undefined
  #scraped: BucketCounts = []
  #delayMax = 0

  constructor(server: RecordedServer) {
    this.#server = server
    this.startedAt = this.#clock.now()
    this.#minutes = [{ at: minuteOf(this.startedAt), before: this.#totals() }]
  }

  get #clock() {
    return this.#server.holdfast.authority.clock
  }

  start(): void {
    let due = performance.now() + SAMPLE_MS
    const sample = (): void => {
      const now = performance.now()
      this.#sample(Math.max(0, now - due) / 1_000)
      due = now + SAMPLE_MS
    }
    this.#timer = setInterval(sample, SAMPLE_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #sample(seconds: number): void {
    this.delay.observe(seconds)
    this.#delayMax = Math.max(this.#delayMax, seconds)
    this.#begin(minuteOf(this.#clock.now()))
  }

  /** Begins all minutes up to this one. */
  #begin(minute: number): void {
    const last = this.#minutes.at(-1)?.at ?? 0
    if (minute === last) return
    const before = this.#totals()
    // The clock was set back, or the process stood still for very long.
    const isFar = minute < last || minute - last > MINUTES * MINUTE_MS
    if (isFar) this.#minutes = []
    for (let at = isFar ? minute : last + MINUTE_MS; at <= minute; at += MINUTE_MS) {
      this.#minutes.push({ at, before })
    }
    this.#minutes = this.#minutes.slice(-MINUTES)
  }

  /** The last hour, oldest first; the minute that goes on is the last. */
  get minutes(): readonly MinuteFigures[] {
    this.#begin(minuteOf(this.#clock.now()))
    const now = this.#totals()
    const known = this.#minutes.map(({ at, before }, index) =>
      figuresBetween(at, before, this.#minutes[index + 1]?.before ?? now),
    )
    const first = this.#minutes[0]?.at ?? 0
    const missing = Array.from({ length: MINUTES - known.length }, (_, index) =>
      figuresBetween(first - (MINUTES - known.length - index) * MINUTE_MS, now, now),
    )
    return [...missing, ...known]
  }

  /** The 99th percentile of the event loop's delay, in this minute and the one before. */
  get recentDelayMs(): number {
    const { before } = this.#minutes.at(-2) ?? this.#minutes[0] ?? {}
    const recent = difference(this.#totals().delay, before?.delay)
    return quantileMs(recent, this.delay.bounds, 0.99) ?? 0
  }

  /** The delay of the event loop since this was called last, in seconds. */
  takeDelay(): Readonly<Record<'0.5' | '0.99' | '1', number>> {
    const counts = [...this.delay.counts]
    const since = difference(counts, this.#scraped)
    const seconds = (quantile: number): number =>
      Math.min(this.#delayMax, (quantileMs(since, this.delay.bounds, quantile) ?? 0) / 1_000)
    const taken = { '0.5': seconds(0.5), '0.99': seconds(0.99), '1': this.#delayMax }
    this.#scraped = counts
    this.#delayMax = 0
    return taken
  }

  #totals(): Totals {
    const { holdfast, answered } = this.#server
    const { counters, figures } = holdfast.authority
    const durations = [...figures.agents].flatMap(([, { durations: ends }]) =>
      Array.from(ends, ([, histogram]) => histogram),
    )
    const failed = [...answered].filter(([status]) => status >= 500)
    return {
      turns: {
        started: counters.turnsStarted,
        done: counters.turnsDone,
        failed: counters.turnsFailed,
        cancelled: counters.turnsCancelled,
        interrupted: counters.turnsInterrupted,
      },
      refused: counters.turnsRefused,
      asks: { opened: counters.asksOpened, settled: counters.asksSettled },
      errors: failed.reduce((sum, [, count]) => sum + count, 0),
      wait: [...figures.queueWait.counts],
      duration: sumOf(durations),
      delay: [...this.delay.counts],
    }
  }
}

function minuteOf(at: number): number {
  return Math.floor(at / MINUTE_MS) * MINUTE_MS
}

const { bounds: SECONDS } = new Histogram()

function figuresBetween(at: number, before: Totals, after: Totals): MinuteFigures {
  const { turns, asks } = after
  return {
    at,
    turns: {
      started: turns.started - before.turns.started,
      done: turns.done - before.turns.done,
      failed: turns.failed - before.turns.failed,
      cancelled: turns.cancelled - before.turns.cancelled,
      interrupted: turns.interrupted - before.turns.interrupted,
    },
    refused: after.refused - before.refused,
    asks: {
      opened: asks.opened - before.asks.opened,
      settled: asks.settled - before.asks.settled,
    },
    errors: after.errors - before.errors,
    wait: percentiles(difference(after.wait, before.wait)),
    duration: percentiles(difference(after.duration, before.duration)),
  }
}

function percentiles(counts: BucketCounts): Percentiles {
  const at = (quantile: number): number | null => quantileMs(counts, SECONDS, quantile)
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

/** All of `SECONDS`. */
function sumOf(histograms: readonly Histogram[]): BucketCounts {
  const sums = Array.from({ length: SECONDS.length + 1 }, () => 0)
  for (const { counts } of histograms) {
    counts.forEach((count, bucket) => (sums[bucket] = (sums[bucket] ?? 0) + count))
  }
  return sums
}

function difference(after: BucketCounts, before: BucketCounts = []): BucketCounts {
  return after.map((count, bucket) => count - (before[bucket] ?? 0))
}

/**
 * Where that part of the values ends, in milliseconds, as if the values of a bucket were evenly
 * spread in it; the last bound for values above all bounds, and null if there are none.
 */
export function quantileMs(
  counts: BucketCounts,
  bounds: readonly number[],
  quantile: number,
): number | null {
  const wanted = quantile * counts.reduce((sum, count) => sum + count, 0)
  if (wanted === 0) return null
  let below = 0
  for (const [bucket, count] of counts.entries()) {
    const upper = bounds[bucket]
    if (upper === undefined) break
    if (below + count >= wanted) {
      const lower = bounds[bucket - 1] ?? 0
      return (lower + ((upper - lower) * (wanted - below)) / count) * 1_000
    }
    below += count
  }
  return (bounds.at(-1) ?? 0) * 1_000
}
