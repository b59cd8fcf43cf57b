import { expect, it } from 'vitest'
import { Watchers } from './watchers.ts'

it('keeps half of the places for watchers that came in without a link', () => {
  const watchers = new Watchers('s', { watchersMax: 5, watchersPerLinkMax: 2 })
  const add = (id: string, link: string | null): void => watchers.add({ id, link, use: id })
  for (const id of ['a', 'b', 'c']) add(id, id)
  expect(() => add('d', 'd')).toThrow('too many watchers')
  for (const id of ['e', 'f']) add(id, null)
  expect(() => add('g', null)).toThrow('too many watchers')
  watchers.remove('a')
  add('h', 'h')
  expect(watchers.count).toBe(5)
})
