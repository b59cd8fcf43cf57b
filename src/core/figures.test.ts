import { expect, it } from 'vitest'
import { AGENTS_MAX, countEnd, Counters, Figures, Histogram, OTHER_AGENTS } from './figures.ts'

it('counts a value in the bucket of the first bound that is not below it', () => {
  const histogram = new Histogram([1, 10])
  for (const value of [0, 1, 1.5, 10, 11, 1_000]) histogram.observe(value)
  expect([...histogram.counts]).toEqual([2, 2, 2])
  expect(histogram.sum).toBe(1_023.5)
  histogram.observeMs(1_000)
  expect([...histogram.counts]).toEqual([3, 2, 2])
})

it('gives a bounded number of agents figures of their own', () => {
  const figures = new Figures()
  for (let n = 0; n < AGENTS_MAX + 5; n += 1) figures.agent(`agent-${n}`).used.costUsd += 1
  const names = Array.from(figures.agents, ([name]) => name)
  expect(names).toHaveLength(AGENTS_MAX + 1)
  expect(names.at(-1)).toBe(OTHER_AGENTS)
  expect(figures.agent('agent-0').used.costUsd).toBe(1)
  expect(figures.agent('agent-36')).toBe(figures.agent('never seen'))
  expect(figures.agent(OTHER_AGENTS).used.costUsd).toBe(5)
})

it('counts each end, and the duration of a turn that has run here', () => {
  const counters = new Counters()
  const figures = new Figures()
  const clock = { monotonic: () => 5_000, now: () => 0, after: () => () => undefined }
  const run = { agent: 'echo', startedAt: 2_000 }
  countEnd({ counters, figures, clock }, 'turn.done', run)
  countEnd({ counters, figures, clock }, 'turn.interrupted', null)
  countEnd({ counters, figures, clock }, 'turn.expired', null)
  const { turnsEnded, turnsDone, turnsInterrupted, turnsExpired, turnsFailed } = counters
  expect([turnsEnded, turnsDone, turnsInterrupted, turnsExpired, turnsFailed]).toEqual([
    3, 1, 1, 1, 0,
  ])
  const durations = Array.from(figures.agent('echo').durations, ([end, { sum }]) => [end, sum])
  expect(durations).toEqual([['done', 3]])
})
