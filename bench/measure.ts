/** What one measurement saw, and how it is told. */
/** Of each turn that is measured. */
export const INPUT = 'hello, is anybody there?'

export type Load = {
  readonly turns: number
  readonly seconds: number
  /** Sorted, in milliseconds. */
  readonly latencies: readonly number[]
}

export type Usage = {
  /** Microseconds of CPU since the last question. */
  readonly cpuMicros: number
  /** The event loop's lag since the last question, in milliseconds. */
  readonly lagP99: number
  readonly rss: number
}

export const perSecond = ({ turns, seconds }: Load): number => turns / seconds

export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
}

export const count = (value: number): string => Math.round(value).toLocaleString('en')

export function describeLoad(load: Load): string {
  const p50 = percentile(load.latencies, 0.5).toFixed(2)
  const p99 = percentile(load.latencies, 0.99).toFixed(2)
  return `${count(perSecond(load))}/s, p50 ${p50} ms, p99 ${p99} ms`
}

/** Calls `turn` from `callers` loops until the time is up. */
export async function drive(
  callers: number,
  seconds: number,
  turn: (caller: number, n: number) => Promise<unknown>,
): Promise<Load> {
  const latencies: number[] = []
  const begin = performance.now()
  const end = begin + seconds * 1_000
  const loop = async (_: unknown, caller: number): Promise<void> => {
    for (let n = 0, at = performance.now(); at < end; n += 1) {
      await turn(caller, n)
      const now = performance.now()
      latencies.push(now - at)
      at = now
    }
  }
  await Promise.all(Array.from({ length: callers }, loop))
  const taken = (performance.now() - begin) / 1_000
  return { turns: latencies.length, seconds: taken, latencies: latencies.toSorted((a, b) => a - b) }
}
