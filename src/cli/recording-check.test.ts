import { describe, expect, it } from 'vitest'
import { RecordingCheck, type RecordedMessage } from './file-checks.ts'

type Said = readonly ['client' | 'browser', RecordedMessage]

const ATTACHED: Said = [
  'browser',
  { method: 'Target.attachedToTarget', params: { sessionId: 'S' } },
]
const DETACHED: Said = [
  'browser',
  { method: 'Target.detachedFromTarget', params: { sessionId: 'S' } },
]

function check(...said: readonly Said[]) {
  const recording = new RecordingCheck()
  said.forEach(([from, message], index) => recording.add({ n: index + 1, from, message }))
  return recording.finish()
}

describe('a recording', () => {
  it('is good if every reply has its command, and sessions speak while they are there', () => {
    const findings = check(
      ['client', { id: 1, method: 'Target.attachToTarget' }],
      ATTACHED,
      ['browser', { id: 1, result: { sessionId: 'S' } }],
      ['client', { id: 2, method: 'Page.enable', sessionId: 'S' }],
      ['browser', { method: 'Page.loadEventFired', sessionId: 'S' }],
      ['browser', { id: 2, result: {}, sessionId: 'S' }],
      ['client', { id: 3, method: 'Page.close', sessionId: 'S' }],
      DETACHED,
      ['client', { id: 4, method: 'Page.enable', sessionId: 'S' }],
      ['browser', { id: 4 }],
    )
    expect(findings).toEqual({ events: 10, turns: 4, problems: [], pending: ['S/3'] })
  })

  it.each<[string, readonly Said[]]>([
    ['replies to /1, which has no command', [['browser', { id: 1, result: {} }]]],
    [
      'replies to S/1, which has no command',
      [ATTACHED, ['client', { id: 1, method: 'A.b' }], ['browser', { id: 1, sessionId: 'S' }]],
    ],
    [
      'which has no command',
      [
        ['client', { id: 1, method: 'A.b' }],
        ['browser', { id: 1, result: {} }],
        ['browser', { id: 1, result: {} }],
      ],
    ],
    ['was not announced', [['browser', { method: 'A.b', sessionId: 'S' }]]],
    ['that is gone', [ATTACHED, DETACHED, ['browser', { method: 'A.b', sessionId: 'S' }]]],
  ])('is bad if it %s', (problem, said) => {
    expect(check(...said).problems.join('\n')).toContain(problem)
  })

  it('is bad if a line is missing, and says nothing of what was dropped', () => {
    const recording = new RecordingCheck()
    recording.add({ n: 1, dropped: 3 })
    recording.add({ n: 2, from: 'browser', message: { id: 7, result: {} } })
    recording.add({ n: 4, from: 'browser', message: '[9 bytes that are no message]' })
    expect(recording.finish().problems).toEqual(['line 4 follows line 2'])
  })
})
