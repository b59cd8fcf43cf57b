import { expect, it } from 'vitest'
import { systemEntropy } from './clock.ts'

it('never draws an id twice, nor one that a command line would take for a flag', () => {
  const ids = Array.from({ length: 10_000 }, () => systemEntropy.id())
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids.every((id) => /^\w[\w-]{21}$/.test(id))).toBe(true)
})
