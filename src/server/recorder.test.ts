import { describe, expect, it } from 'vitest'
import { Counters, Figures, Histogram } from '../core/index.ts'
import type { ServerContext } from '../doors/exchange.ts'
import { quantileMs, Recorder } from './recorder.ts'

const MINUTE_MS = 60_000

/** A recorder without its timer, on a clock that stands still. */
function recorded() {
  const clock = { ms: 100 * MINUTE_MS + 5, now: () => clock.ms }
  const counters = new Counters()
  const figures = new Figures()
  const answered = new Map<number, number>()
  const holdfast = { authority: { clock, counters, figures } }
  const recorder = new Recorder({ holdfast, answered } as unknown as ServerContext)
  const pass = (minutes: number): void => {
    clock.ms += minutes * MINUTE_MS
  }
  return { clock, counters, figures, answered, recorder, pass }
}

describe('the last hour', () => {
  it('has sixty minutes, each with what happened in it', () => {
    const { counters, figures, answered, recorder, pass } = recorded()
    counters.turnsStarted = 3
    figures.queueWait.observeMs(0)
    figures.agent('echo').duration('done').observeMs(1_500)
    figures.agent('slow').duration('failed').observeMs(1_500)
    expect(recorder.minutes).toHaveLength(60)
    pass(1)
    void recorder.minutes
    counters.turnsStarted = 5
    counters.turnsDone = 4
    counters.asksOpened = 1
    answered.set(200, 9).set(503, 2).set(500, 1)
    pass(1)
    const [before, first, second, third] = recorder.minutes.slice(-4)
    expect(before).toMatchObject({ at: 99 * MINUTE_MS, turns: { started: 0 }, wait: { p50: null } })
    expect(first).toMatchObject({ at: 100 * MINUTE_MS, turns: { started: 3, done: 0 }, errors: 0 })
    expect(first?.duration.p50).toBe(1_500)
    expect(first?.wait.p99).toBeLessThanOrEqual(1)
    expect(second).toMatchObject({ turns: { started: 2, done: 4 }, errors: 3 })
    expect(second).toMatchObject({ asks: { opened: 1, settled: 0 }, duration: { p99: null } })
    expect(third).toMatchObject({ at: 102 * MINUTE_MS, turns: { started: 0 }, errors: 0 })
  })

  it('forgets what is older, also after a standstill', () => {
    const { counters, recorder, pass } = recorded()
    counters.turnsStarted = 1
    pass(59)
    expect(recorder.minutes[0]?.turns.started).toBe(1)
    pass(1)
    expect(recorder.minutes.every(({ turns }) => turns.started === 0)).toBe(true)
    counters.turnsStarted = 2
    pass(10_000)
    expect(recorder.minutes).toHaveLength(60)
    expect(recorder.minutes.every(({ turns }) => turns.started === 0)).toBe(true)
  })

  it('begins anew when the clock is set back', () => {
    const { counters, recorder, pass } = recorded()
    pass(-30)
    void recorder.minutes
    counters.turnsStarted = 2
    expect(recorder.minutes.at(-1)).toMatchObject({ at: 70 * MINUTE_MS, turns: { started: 2 } })
  })
})

describe('a quantile', () => {
  it('is found between the bounds of its bucket', () => {
    const histogram = new Histogram([1, 2, 4])
    for (const value of [0.5, 1.5, 1.5, 1.5, 3, 3, 3, 3, 3, 3]) histogram.observe(value)
    const at = (quantile: number) => quantileMs([...histogram.counts], histogram.bounds, quantile)
    expect([at(0.1), at(0.4), at(0.7), at(1)]).toEqual([1_000, 2_000, 3_000, 4_000])
  })

  it('is the last bound above all bounds, and null of nothing', () => {
    expect(quantileMs([0, 0, 3], [1, 2], 0.5)).toBe(2_000)
    expect(quantileMs([0, 0, 0], [1, 2], 0.5)).toBe(null)
  })
})
