import { expect, it } from 'vitest'
import { linkPrincipal, type Principal } from './state.ts'
import { Watchers } from './watchers.ts'

const token = (id: string): Principal => ({ kind: 'token', issuer: 'holdfast', id })

it('keeps half of the places for watchers that came in without a link', () => {
  const watchers = new Watchers('s', { watchersMax: 5, watchersPerLinkMax: 2 })
  const add = (id: string, link: string | null) => {
    const by = link === null ? token('t') : linkPrincipal(link)
    return watchers.add({ id, link, use: id, by })
  }
  for (const id of ['a', 'b', 'c']) add(id, id)
  expect(() => add('d', 'd')).toThrow('too many watchers')
  for (const id of ['e', 'f']) add(id, null)
  expect(() => add('g', null)).toThrow('too many watchers')
  watchers.remove('a')
  add('h', 'h')
  expect(watchers.count).toBe(5)
})

it('lets the principal that has most give up its last for one that has fewer', () => {
  const watchers = new Watchers('s', { watchersMax: 4, watchersPerLinkMax: 4 })
  const add = (id: string, whose: string): string | undefined =>
    watchers.add({ id, link: null, use: id, by: token(whose) })?.id
  for (const id of ['a', 'b', 'c', 'd']) add(id, 'crowd')
  expect(() => add('e', 'crowd')).toThrow('too many watchers')
  expect([add('f', 'other'), add('g', 'other')]).toEqual(['d', 'c'])
  expect(() => add('h', 'other')).toThrow('too many watchers')
  expect([add('i', 'third'), watchers.has('b'), watchers.count]).toEqual(['b', false, 4])
})

it('lets a guest take the place of another guest only', () => {
  const watchers = new Watchers('s', { watchersMax: 4, watchersPerLinkMax: 4 })
  for (const id of ['a', 'b', 'c', 'd']) {
    watchers.add({ id, link: null, use: id, by: token('crowd') })
  }
  const guest = (id: string, link: string) => ({ id, link, use: id, by: linkPrincipal(link) })
  expect(() => watchers.add(guest('e', 'l1'))).toThrow('too many watchers')
  for (const id of ['c', 'd']) watchers.remove(id)
  for (const id of ['e', 'f']) expect(watchers.add(guest(id, 'l1'))).toBeNull()
  expect(watchers.add(guest('g', 'l2'))?.id).toBe('f')
})
