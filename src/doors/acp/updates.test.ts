import { describe, expect, it } from 'vitest'
import type { Ask, Delta, SessionEvent } from '../../core/index.ts'
import { HoldfastError } from '../../core/index.ts'
import { cursorText, readCursor } from './cursor.ts'
import { errorBody } from './errors.ts'
import { answerIn, questionFor } from './questions.ts'
import { UpdateTranslator } from './updates.ts'

type Given = { readonly type: string; readonly [field: string]: unknown }

/** What the events of a turn are told as; `chars`: of its message the client has these. */
function told(events: readonly Given[], chars = 0): any[] {
  const translator = new UpdateTranslator((turn) => turn === 'own')
  return events.flatMap((event, index) => {
    if (index === 1) translator.chars = chars
    const whole = { turn: 't1', seq: index + 1, at: 0, ...event } as unknown
    return translator.take(whole as SessionEvent | Delta) as any[]
  })
}

const started = { type: 'turn.started', input: 'hi' }
const delta = (text: string) => ({ type: 'delta', text, n: 1 })
const message = (text: string) => ({ type: 'message.added', role: 'assistant', text })
const tool = (data: object) => ({ type: 'turn.activity', kind: 'tool', data })
const texts = (updates: readonly any[]): string[] =>
  updates.map(({ content, image }) => image ?? content?.text)

describe('the words of a turn', () => {
  it.each([
    ['a message that nothing was told of', [message('all')], 0, ['all']],
    ['deltas, and the rest with the message', [delta('a'), message('ab')], 0, ['a', 'b']],
    ['no more than the deltas had', [delta('ab'), message('ab')], 0, ['ab']],
    ['not twice what a client has that comes back', [delta('abc'), delta('d')], 2, ['c', 'd']],
    ['nothing of a message that was cut short', [message('ab')], 5, []],
    ['not again a message that differs', [delta('ab'), message('xy')], 0, ['ab']],
    ['two messages apart', [message('a'), delta('b')], 0, ['a', 'b']],
  ])('are %s', (_, events, chars, expected) => {
    expect(texts(told([{ ...started, turn: 'own' }, ...events], chars))).toEqual(expected)
  })

  it('have the number of their message', () => {
    const updates = told([started, delta('a'), message('a'), message('b')])
    expect(updates.map(({ messageId }) => messageId)).toEqual(['t1', 't1-0', 't1-1'])
  })

  it('of the user are told unless they are the client’s own', () => {
    expect(texts(told([started]))).toEqual(['hi'])
    expect(told([{ ...started, turn: 'own' }])).toEqual([])
    expect(texts(told([started, { type: 'turn.steered', input: 'more', steering: 1 }]))).toEqual([
      'hi',
      'more',
    ])
  })
})

describe('a tool call', () => {
  it('is new once, then has what changed, and fails with its turn', () => {
    const events = [
      { ...started, turn: 'own' },
      tool({ id: 'c', name: 'Write', kind: 'edit', status: 'running' }),
      tool({ id: 'c', diff: [{ path: '/a', unified: '+x' }] }),
      { type: 'turn.interrupted', reason: 'crash' },
    ]
    expect(told(events)).toEqual([
      {
        sessionUpdate: 'tool_call',
        toolCallId: 'c',
        title: 'Write',
        kind: 'edit',
        status: 'in_progress',
      },
      {
        ...{ sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'in_progress' },
        content: [{ type: 'content', content: { type: 'text', text: '/a\n+x' } }],
      },
      { sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'failed' },
    ])
  })

  it('that is over stays as it is', () => {
    const over = tool({ id: 'c', title: 'x', status: 'done' })
    const updates = told([started, over, { type: 'turn.failed', error: {} }])
    expect(updates.map(({ status }) => status)).toEqual([undefined, 'completed'])
  })
})

describe('an ask', () => {
  const ask = (more: Partial<Ask>): Ask => ({
    ...{ id: 'a1', turn: 't1', kind: 'permission', question: 'May I?', options: null },
    ...{ deadline: 0, onNobody: 'wait' as const },
    ...more,
  })
  const options = [
    { id: 'allow_always', label: 'Always' },
    { id: 'deny', label: 'No' },
  ]

  it.each([
    ['a permission', {}, false, 'session/request_permission'],
    ['a question with options', { kind: 'question', options }, false, 'session/request_permission'],
    ['the same where forms are taken', { kind: 'question', options }, true, 'elicitation/create'],
    ['a free question', { kind: 'question' }, true, 'elicitation/create'],
    ['a free question without forms', { kind: 'question' }, false, undefined],
  ])('that is %s is asked so', (_, more, takesForms, method) => {
    expect(questionFor('S', ask(more), { takesForms })?.method).toBe(method)
  })

  it('has the kinds of its options, by the agent or by their names', () => {
    const kinds = (data?: unknown): unknown[] => {
      const asked = questionFor('S', ask({ options, ...(data === undefined ? {} : { data }) }), {
        takesForms: false,
      })
      return (asked!.params as any).options.map(({ kind }: any) => kind)
    }
    expect(kinds()).toEqual(['allow_always', 'reject_once'])
    expect(kinds({ kinds: { deny: 'reject_always' } })).toEqual(['allow_always', 'reject_always'])
  })

  it.each([
    [{ outcome: { outcome: 'selected', optionId: 'x' } }, 'x'],
    [{ outcome: { outcome: 'cancelled' } }, undefined],
    [{ action: 'accept', content: { answer: ['x'] } }, ['x']],
    [{ action: 'accept', content: { text: 'so' } }, { text: 'so' }],
    [{ action: 'decline' }, undefined],
    ['nonsense', undefined],
    [undefined, undefined],
  ])('is answered by %j with %j', (result, answer) => {
    expect(answerIn(ask({ options }), result)).toEqual(answer)
  })

  it('without options is answered in one’s own words', () => {
    expect(answerIn(ask({}), { action: 'accept', content: { text: 'so' } })).toBe('so')
  })
})

describe('a cursor', () => {
  it('is what it was written as', () => {
    const cursor = { from: 3, seq: 9, updates: 1, chars: 27 }
    expect(readCursor(cursorText(cursor))).toEqual(cursor)
  })

  it.each(['', '1.2.3', '9.3.0.0', '-1.3.0.0', '1.3.0.0.0', '1.3.0.9999999999'])(
    'is not %j',
    (text) => {
      expect(() => readCursor(text)).toThrow(expect.objectContaining({ code: 'invalid_field' }))
    },
  )
})

describe('an error', () => {
  it.each([
    ['unauthorized', -32_000],
    ['session_unknown', -32_002],
    ['session_closed', -32_002],
    ['invalid_field', -32_602],
    ['cancelled', -32_800],
    ['forbidden', -32_010],
    ['session_busy', -32_010],
    ['store_unavailable', -32_010],
    ['internal', -32_603],
  ] as const)('%s has the number %i, and our code', (code, number) => {
    const body = errorBody(new HoldfastError(code, 'words', { position: 2 }))
    expect(body).toMatchObject({ code: number, data: { code, position: 2 } })
  })

  it('that is unforeseen tells nothing', () => {
    expect(JSON.stringify(errorBody(new Error('a secret')))).not.toContain('secret')
  })
})
