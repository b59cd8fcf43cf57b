import { expect, it } from 'vitest'
import { LargeBodies } from './request-body.ts'

it('gives one principal half of the room for large bodies, and all together no more', () => {
  const room = new LargeBodies(100)
  const [alice, more, bob, carol] = ['alice', 'alice', 'bob', 'carol'].map((name) =>
    room.open(name),
  )
  expect(alice?.grow(30)).toBeNull()
  expect(alice?.grow(40)).toBeNull()
  expect(more?.grow(11)).toMatchObject({ code: 'too_many' })
  expect(more?.grow(10)).toBeNull()
  expect(bob?.grow(50)).toBeNull()
  expect(carol?.grow(1)).toMatchObject({ code: 'too_many' })
  for (const one of [alice, alice]) one?.release()
  expect(carol?.grow(40)).toBeNull()
  expect(more?.grow(50)).toMatchObject({ code: 'too_many' })
})
