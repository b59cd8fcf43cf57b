import { expect, it } from 'vitest'
import { Losses } from './loading.ts'

it('blames the node that held the session last', () => {
  const losses = new Losses()
  losses.add('s')
  expect(losses.reasonOf('s', false, true)).toBe('hold_lost')
  losses.add('s')
  // Another node has had it since.
  expect(losses.reasonOf('s', true, true)).toBe('node_lost')
  expect(losses.reasonOf('s', false, true)).toBe('node_lost')
  expect(losses.reasonOf('s', false, false)).toBe('server_crashed')
})
