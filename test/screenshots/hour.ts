/** An hour of a server that is used, for pictures of its charts: the same each time. */

/** Between 0 and 1, the same for the same minute. */
const spread = (minute: number, salt: number): number => {
  const value = Math.sin(minute * 12.9898 + salt * 78.233) * 43_758.5453
  return value - Math.floor(value)
}

export function hourOf(minutes: readonly { readonly at: number }[]): readonly object[] {
  return minutes.map(({ at }, minute) => {
    const load = 5 + 4 * Math.sin(minute / 9) + 3 * spread(minute, 1)
    const failed = spread(minute, 2) > 0.9 ? 1 : 0
    const cancelled = spread(minute, 3) > 0.85 ? 1 : 0
    const done = Math.round(load)
    const wait = 120 + 90 * Math.sin(minute / 9) + 60 * spread(minute, 4)
    const duration = 8_000 + 5_000 * spread(minute, 5)
    return {
      at,
      turns: { started: done + failed + cancelled, done, failed, cancelled, interrupted: 0 },
      refused: minute > 40 && minute < 46 ? Math.round(4 * spread(minute, 6)) : 0,
      asks: { opened: Math.round(2.4 * spread(minute, 7)), settled: 1 },
      errors: minute === 42 ? 2 : 0,
      wait: { p50: wait, p95: wait * 3.1, p99: wait * 4 },
      duration: { p50: duration, p95: duration * 2.4, p99: duration * 3 },
    }
  })
}
