import { describe, expect, it } from 'vitest'
import { SCOPES } from './access.ts'
import { Answerers, type AnsweringFollower } from './answerers.ts'
import { LIMITS, STATE_LIMITS } from './limits.ts'

const SESSION = { id: 's', principal: 'p', shares: [], agent: 'a', labels: {} }
const follower = (kind: string, principal = 'p'): AnsweringFollower => ({
  answers: [kind],
  access: { principal, groups: [], scopes: SCOPES },
})

/** The followers of a node without others; `pass` lets all times pass that run. */
function node() {
  const due: (() => void)[] = []
  let left = 0
  const after = (_: number, run: () => void) => {
    due.push(run)
    return () => undefined
  }
  const answerers = new Answerers({
    store: {} as never,
    clock: { after } as never,
    limits: LIMITS,
    diagnose: () => undefined,
    node: 'n',
    needsAnswerers: () => false,
    answererLeft: () => void (left += 1),
  })
  const pass = (): void => due.splice(0).forEach((run) => run())
  return { answerers, pass, left: () => left }
}

describe('followers of all asks', () => {
  it('that say the same count as one, until the last of them has left', async () => {
    const { answerers, pass, left } = node()
    const leave = [
      await answerers.join(follower('question')),
      await answerers.join(follower('question')),
    ]
    expect(answerers.counts(SESSION, 'permission')).toBe(false)
    for (const [index, expected] of [true, false].entries()) {
      leave[index]?.()
      expect(answerers.counts(SESSION, 'question')).toBe(true)
      pass()
      expect([answerers.counts(SESSION, 'question'), left()]).toEqual([expected, index])
    }
  })

  it('of one principal may say so much, however many of them say the same', async () => {
    const { answerers } = node()
    const long = follower('x'.repeat(STATE_LIMITS.answererCharsMax / 2))
    for (let count = 0; count < 3; count += 1) {
      answerers.assertRoom(long)
      await answerers.join(long)
    }
    const other = 'y'.repeat(STATE_LIMITS.answererCharsMax / 2)
    expect(() => answerers.assertRoom(follower(other))).toThrow('too many different followers')
    answerers.assertRoom(follower(other, 'q'))
  })
})
