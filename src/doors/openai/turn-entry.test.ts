import { describe, expect, it } from 'vitest'
import { RetryAttempt, RetryAttempts } from './turn-entry.ts'

const MINUTE = 60_000

/** An attempt whose caller left at this time. */
function left(key: string, leftAt: number, facts: Partial<RetryAttempt> = {}): RetryAttempt {
  return Object.assign(new RetryAttempt(Promise.resolve(key), 0), { leftAt, ...facts })
}

function remembering(...attempts: readonly RetryAttempt[]): RetryAttempts {
  const all = new RetryAttempts()
  for (const attempt of attempts) all.add('body', attempt, attempt.leftAt)
  return all
}

describe('a retry', () => {
  const answered = { isAnswered: true }
  const waiting = { callers: 1 }

  it.each([
    ['the one that was left last', [left('other', 1), left('this', 3), left('other', 2)]],
    ['one without an answer', [left('this', 1), left('other', 2, answered)]],
    ['one whose caller is gone', [left('this', 1), left('other', 2, waiting)]],
    ['one whose caller is gone', [left('this', 1, answered), left('other', 2, waiting)]],
    ['one of just now', [left('other', -2 * MINUTE), left('this', 1, answered)]],
    ['one of just now', [left('other', -2 * MINUTE), left('this', 1, waiting)]],
  ])('is rather of %s', async (_, attempts) => {
    expect(await remembering(...attempts).find('body', 1, 4)?.key).toBe('this')
  })

  it('is never of a later attempt, nor of another body, and a first attempt is of none', () => {
    const attempts = remembering(left('a', 1, { count: 2 }))
    expect(attempts.find('body', 2, 4)).toBeNull()
    expect(attempts.find('other', 3, 4)).toBeNull()
    expect(remembering(left('a', 1)).find('body', 0, 4)).toBeNull()
  })

  it('may come for a minute after an answer, and for ten after none', () => {
    const attempts = remembering(left('answered', 0, { isAnswered: true }))
    expect(attempts.find('body', 1, MINUTE)).not.toBeNull()
    expect(attempts.find('body', 1, MINUTE + 1)).toBeNull()
    const others = remembering(left('unanswered', 0))
    expect(others.find('body', 1, 10 * MINUTE)).not.toBeNull()
    expect(others.find('body', 1, 10 * MINUTE + 1)).toBeNull()
  })

  it('may come however late while its attempt is still waited for', () => {
    const attempts = remembering(left('a', 0, { callers: 1 }))
    expect(attempts.find('body', 1, 600 * MINUTE)).not.toBeNull()
  })
})

describe('attempts', () => {
  it('that could not be begun are forgotten', async () => {
    const attempts = new RetryAttempts()
    attempts.add('body', new RetryAttempt(Promise.reject(new Error('no')), 0), 0)
    await Promise.resolve()
    await Promise.resolve()
    expect(attempts.find('body', 1, 1)).toBeNull()
  })

  it('are bounded, with one body and in all', () => {
    const attempts = new RetryAttempts()
    for (let n = 0; n < 100; n += 1) attempts.add('same', left(`${n}`, 0), 0)
    expect(attempts.of('same')).toHaveLength(32)
    for (let n = 0; n < 10_100; n += 1) attempts.add(`body ${n}`, left('x', 0), 0)
    expect(attempts.of('same')).toEqual([])
    expect(attempts.of('body 10099')).toHaveLength(1)
  })
})
