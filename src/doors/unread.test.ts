import { expect, it } from 'vitest'
import { Unread } from './unread.ts'

it('cuts off the readers that have waited longest when too much waits', () => {
  const unread = new Unread(100)
  const cut: string[] = []
  const wait = (name: string, bytes: number) =>
    unread.add(new Uint8Array(bytes), () => cut.push(name))
  const first = wait('first', 40)
  wait('second', 40)
  first()
  wait('third', 40)
  expect([cut, unread.bytes]).toEqual([[], 80])
  const fourth = wait('fourth', 70)
  expect([cut, unread.bytes]).toEqual([['second', 'third'], 70])
  fourth()
  fourth()
  expect(unread.bytes).toBe(0)
})

it('counts what many are sent once, until the last of them has it', () => {
  const unread = new Unread(100)
  const shared = new Uint8Array(60)
  const cut: number[] = []
  const sent = [0, 1, 2].map((reader) => unread.add(shared, () => cut.push(reader)))
  expect(unread.bytes).toBe(60)
  sent[0]?.()
  sent[1]?.()
  expect(unread.bytes).toBe(60)
  unread.add(new Uint8Array(60), () => cut.push(3))
  expect([cut, unread.bytes]).toEqual([[2], 60])
})

it('cuts off a reader at once that has more waiting than all together may', () => {
  let isCut = false
  const unread = new Unread(100)
  unread.add(new Uint8Array(101), () => (isCut = true))
  expect([isCut, unread.bytes]).toEqual([true, 0])
})
