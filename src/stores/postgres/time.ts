/**
 * The database's time, as a node knows it between two answers: what the database said last, and
 * what has passed since then on this machine's monotonic clock. A node whose own clock is wrong, or
 * is set while it runs, has the same time as the others.
 */

/** Milliseconds since 1970, as SQL. */
export const NOW = '(extract(epoch FROM clock_timestamp()) * 1000)::float8'

export class DatabaseTime {
  /** Added to the monotonic clock; from this machine's clock until the database has answered. */
  #offset = Date.now() - performance.now()

  /** What the database has answered to a question of that moment (monotonic). */
  set(now: number, askedAt: number): void {
    // As if both ways had taken the same time.
    this.#offset = now - (askedAt + performance.now()) / 2
  }

  now(): number {
    return Math.round(performance.now() + this.#offset)
  }
}
