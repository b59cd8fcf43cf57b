import { describe, expect, it } from 'vitest'
import { askOf, boundDetail, chosen, decideAsk } from './asks.ts'
import { LIMITS, type Limits } from './limits.ts'
import { LOCAL, type Ask, type Session } from './state.ts'

const ASK: Ask = {
  ...{ id: 'a3', turn: 't2', kind: 'permission', question: 'May I?', deadline: 9 },
  options: [
    { id: 'allow', label: 'Allow' },
    { id: 'deny', label: 'Deny' },
  ],
  onNobody: 'wait',
}

function answer(ask: Partial<Ask>, answered: unknown, mayEdit = false) {
  const session = { id: 's', seq: 3, asks: [{ ...ASK, ...ask }] } as unknown as Session
  const command = {
    type: 'answer',
    ask: 'a3',
    answer: answered,
    by: LOCAL,
    attachment: null,
  } as const
  return decideAsk(
    session,
    { ...command, mayEdit },
    { at: 4, said: () => null, hasFollower: () => false },
  )
}

describe('an answer', () => {
  it.each([
    [{}, 'allow'],
    [{}, { option: 'deny' }],
    [{ accepts: ['message'] }, { option: 'deny', message: 'not there' }],
    [{ accepts: ['several'] }, ['allow', 'deny']],
    [{ accepts: ['several'] }, []],
    [{ accepts: ['text'] }, { text: 'something else' }],
    [{ options: null }, { anything: true }],
  ] as const)('of a form that the ask %j accepts settles it: %j', (ask, answered) => {
    const settled = { type: 'ask.settled', ask: 'a3', outcome: 'answered', answer: answered }
    expect(answer(ask as Partial<Ask>, answered)).toEqual([expect.objectContaining(settled)])
  })

  it.each([
    [{}, 'maybe'],
    [{}, null],
    [{}, { option: 'deny', message: 'why' }],
    [{}, ['allow']],
    [{}, { text: 'own words' }],
    [{}, {}],
    [{ accepts: ['several'] }, ['allow', 'maybe']],
    [{ accepts: ['message'] }, { option: 'deny', message: 7 }],
    [{ accepts: ['message'] }, { message: 'no option' }],
    [{ accepts: ['text'] }, { text: 7 }],
  ] as const)('of another form than the ask %j accepts is refused: %j', (ask, answered) => {
    const refused = () => answer(ask, answered)
    expect(refused).toThrow(expect.objectContaining({ code: 'invalid_answer' }))
  })

  it('with edited arguments needs the scope for it', () => {
    const edited = { option: 'allow', input: { command: 'ls' } }
    const ask = { accepts: ['input'] } as const
    expect(() => answer(ask, edited)).toThrow(expect.objectContaining({ code: 'forbidden' }))
    expect(answer(ask, edited, true)).toHaveLength(1)
    expect(chosen(edited)).toMatchObject({ options: ['allow'], input: { command: 'ls' } })
  })
})

describe('the detail of an ask', () => {
  const limits = LIMITS as Limits

  it('is kept whole if it fits', () => {
    const detail = { tool: 'Bash', command: 'ls', input: { command: 'ls' } }
    const ask = askOf({ kind: 'permission', question: 'q', detail }, { turn: 't', at: 0, limits })
    expect(ask.detail).toEqual(detail)
  })

  it('keeps the beginnings of what is too large, and says so', () => {
    const after = 'x'.repeat(200_000)
    const detail = { tool: 'Write', diff: [{ path: '/a', before: null, after }], input: { after } }
    const ask = askOf({ kind: 'permission', question: 'q', detail }, { turn: 't', at: 0, limits })
    expect(ask.detail).toMatchObject({ tool: 'Write', truncated: true })
    expect(ask.detail?.input).toBeUndefined()
    expect(JSON.stringify(ask).length).toBeLessThanOrEqual(limits.askBytesMax)
    expect(ask.detail?.diff?.[0]).toMatchObject({ path: '/a', before: null })
  })

  it('is never larger than it may be, however it is made', () => {
    const paths = Array.from({ length: 10_000 }, (_, index) => `/${'p'.repeat(200)}${index}`)
    const detail = { tool: 't'.repeat(50_000), paths, reason: 'r'.repeat(50_000) }
    for (const charsMax of [60_000, 8_000, 600]) {
      const bounded = boundDetail(detail, charsMax)
      expect(JSON.stringify(bounded).length).toBeLessThanOrEqual(charsMax)
      expect(bounded.truncated).toBe(true)
    }
  })
})
