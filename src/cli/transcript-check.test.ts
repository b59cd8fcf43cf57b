import { describe, expect, it } from 'vitest'
import { TranscriptCheck } from './file-checks.ts'

/** Messages as `seq turn role`. */
function check(...messages: readonly string[]) {
  const transcript = new TranscriptCheck()
  for (const message of messages) {
    const [seq, turn = '', role = ''] = message.split(' ')
    transcript.add({ seq: Number(seq), turn, role })
  }
  return transcript.finish()
}

describe('a transcript', () => {
  it('is good if each turn is whole and they follow each other', () => {
    const findings = check('2 t2 user', '3 t2 assistant', '4 t2 assistant', '6 t6 user')
    expect(findings).toEqual({ events: 4, turns: 2, problems: [], pending: ['t6'] })
  })

  it.each([
    [['2 t2 user', '5 t5 user', '6 t2 assistant'], 'message 6 is of turn t2, within turn t5'],
    [['2 t2 user', '3 t2 assistant', '4 t2 user'], 'begins turn t2 again'],
    [['3 t3 user', '2 t2 user'], 'message 2 follows message 3'],
    [['2 t2 assistant'], 'within turn null'],
  ])('is bad if it goes %j', (messages, problem) => {
    expect(check(...messages).problems.join('\n')).toContain(problem)
  })
})
