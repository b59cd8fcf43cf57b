import { describe, expect, it } from 'vitest'
import type { Ask } from '../../core/index.ts'
import { permissionAnswer, questionAnswer, requestEvent, sortOf } from './asks.ts'

function ask(more: Partial<Ask>): Ask {
  const base = { id: 'a7', turn: 't3', kind: 'permission', question: 'May I?', options: null }
  return { ...base, deadline: 0, onNobody: 'wait', ...more }
}
const options = (...ids: readonly string[]) => ids.map((id) => ({ id, label: `label of ${id}` }))

describe('a permission', () => {
  it.each([
    [['allow', 'deny'], 'approve-once', 'allow'],
    [['deny', 'allow_always', 'allow'], 'approve-once', 'allow'],
    [['allow', 'allow_always', 'deny'], 'approve-for-session', 'allow_always'],
    [['allow', 'deny'], 'approve-permanently', 'allow'],
    [['allow', 'deny'], 'reject', 'deny'],
    [['yes', 'no'], 'reject', 'no'],
    [['yes', 'no'], 'approve-once', 'yes'],
    [['allow', 'reject_always'], 'reject', 'reject_always'],
    [['allow', 'reject_always', 'reject_once'], 'reject', 'reject_once'],
    [['allow', 'deny'], 'user-not-available', 'deny'],
    // What is not known approves nothing.
    [['allow', 'deny'], 'toString', 'deny'],
  ])('with the options %j and the decision %s is answered %s', (ids, kind, answer) => {
    expect(permissionAnswer(ask({ options: options(...ids) }), { kind })).toBe(answer)
  })

  it('takes what an agent of ACP says of its own options', () => {
    const kinds = { p1: 'allow_once', p2: 'allow_always', p3: 'reject_once' }
    const asked = ask({ options: options('p1', 'p2', 'p3'), data: { kinds } })
    const answers = ['approve-once', 'approve-for-session', 'reject'].map((kind) =>
      permissionAnswer(asked, { kind }),
    )
    expect(answers).toEqual(['p1', 'p2', 'p3'])
  })

  it('is not answered by an option whose meaning is not known', () => {
    const asked = ask({ options: options('left', 'right', 'notably', 'allowance') })
    for (const kind of ['approve-once', 'reject']) {
      expect(() => permissionAnswer(asked, { kind })).toThrow('left, right')
    }
  })

  it('takes words only where the ask does', () => {
    const decision = { kind: 'reject', feedback: 'not now' }
    const asked = ask({ options: options('allow', 'deny') })
    expect(permissionAnswer(asked, decision)).toBe('deny')
    const talkative = { ...asked, accepts: ['message'] as const }
    expect(permissionAnswer(talkative, decision)).toEqual({ option: 'deny', message: 'not now' })
  })

  it.each([
    [
      { command: 'rm x > y', paths: ['x'] },
      { kind: 'shell', fullCommandText: 'rm x > y' },
    ],
    [
      { kind: 'edit', diff: [{ path: 'a', before: null, after: 'b\n' }] },
      { kind: 'write', fileName: 'a' },
    ],
    [
      { kind: 'read', paths: ['a'] },
      { kind: 'read', path: 'a' },
    ],
    [
      { kind: 'fetch', url: 'https://x' },
      { kind: 'url', url: 'https://x' },
    ],
    [
      { tool: 'say', input: { a: 1 } },
      { kind: 'custom-tool', toolName: 'say', args: { a: 1 } },
    ],
    [{}, { kind: 'custom-tool', toolDescription: 'May I?' }],
  ] as const)('about %j is a request for %j', (detail, request) => {
    const [type, data] = requestEvent(ask({ detail }), 's') ?? []
    expect([type, data]).toMatchObject([
      'permission.requested',
      { requestId: 'a7', permissionRequest: request },
    ])
  })
})

describe('a question', () => {
  it('is answered by a label, an id, or words of the client’s own where it takes them', () => {
    const asked = ask({ kind: 'question', options: options('r', 'g') })
    expect(questionAnswer(asked, 'label of g')).toBe('g')
    expect(questionAnswer(asked, 'r')).toBe('r')
    expect(() => questionAnswer(asked, 'blue')).toThrow('"label of r"')
    expect(questionAnswer({ ...asked, accepts: ['text'] }, 'blue')).toEqual({ text: 'blue' })
    expect(questionAnswer({ ...asked, options: null }, 'blue')).toBe('blue')
  })

  it('of another kind is not for these clients', () => {
    expect(sortOf({ kind: 'browser' })).toBeNull()
    expect(requestEvent(ask({ kind: 'browser' }), 's')).toBeNull()
  })
})
