import { describe, expect, it } from 'vitest'
import { chosen, decideAsk } from './asks.ts'
import { STATE_LIMITS } from './limits.ts'
import { LOCAL, type Ask, type Grant, type Session } from './state.ts'

const ASK: Ask = {
  ...{ id: 'a3', turn: 't2', kind: 'permission', question: 'May I?', deadline: 9 },
  options: [
    { id: 'allow', label: 'Allow' },
    { id: 'deny', label: 'Deny' },
  ],
  onNobody: 'wait',
}

type Before = { readonly mayEdit?: boolean; readonly grants?: readonly Grant[] }

function answer(
  ask: Partial<Ask>,
  answered: unknown,
  { mayEdit = false, grants = [] }: Before = {},
) {
  const session = { id: 's', seq: 3, asks: [{ ...ASK, ...ask }], grants } as unknown as Session
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
    expect(answer(ask, edited, { mayEdit: true })).toHaveLength(1)
    expect(chosen(edited)).toMatchObject({ options: ['allow'], input: { command: 'ls' } })
  })
})

describe('an option that grants something for the session', () => {
  const rule: Grant = { label: 'Bash(ls)', data: { rule: 'ls' } }
  const always = { id: 'always', label: 'Always', grants: [rule] }
  const ask = { options: [...(ASK.options ?? []), always], accepts: ['message'] } as const

  it('is recorded with the answer that chooses it, whatever the form of that', () => {
    const granted = { type: 'session.granted', ask: 'a3', grants: [rule], by: LOCAL }
    for (const given of ['always', { option: 'always', message: 'fine' }]) {
      expect(answer(ask, given)).toEqual([
        expect.objectContaining({ outcome: 'answered' }),
        granted,
      ])
    }
    expect(answer(ask, 'allow')).toHaveLength(1)
  })

  it('is recorded once', () => {
    expect(answer(ask, 'always', { grants: [rule] })).toHaveLength(1)
  })

  it('is refused when the session has too much of it, and nothing is settled', () => {
    const large = { label: 'x'.repeat(STATE_LIMITS.grantsCharsMax), data: null }
    const refused = () => answer(ask, 'always', { grants: [large] })
    expect(refused).toThrow(expect.objectContaining({ code: 'too_many' }))
  })
})
