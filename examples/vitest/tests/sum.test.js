import { expect, test } from 'vitest'

test('adds up', () => {
  expect(1 + 1).toBe(2)
})
