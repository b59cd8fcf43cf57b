import { expect, it } from 'vitest'
import { ClockWatch } from './recovery.ts'

it('reports a clock that was set, by how much and once, and none that goes on', () => {
  const time = { wall: 1e12, monotonic: 0 }
  const clock = { now: () => time.wall, monotonic: () => time.monotonic }
  const told: unknown[] = []
  const watch = new ClockWatch(clock, (code, _, facts) => told.push([code, facts?.['ms']]))
  const pass = (ms: number, jumpMs: number): void => {
    time.monotonic += ms
    time.wall += ms + jumpMs
    watch.look()
  }
  pass(30_000, 0)
  pass(30_000, 900)
  expect(told).toEqual([])
  pass(30_000, 3_600_000)
  pass(30_000, 0)
  pass(30_000, -7_200_000)
  expect(told).toEqual([
    ['clock_jumped', 3_600_000],
    ['clock_jumped', -7_200_000],
  ])
})
