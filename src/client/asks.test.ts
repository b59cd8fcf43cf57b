import { describe, expect, it } from 'vitest'
import { Asks } from './asks.ts'
import { HoldfastClientError } from './endings.ts'

const tooLate = new HoldfastClientError('ask_settled', 'ask a1 is settled')

/** Sent twice, refused the second time, while the log says that `answered` came from this place. */
async function refusedThenTold(answered: unknown): Promise<string> {
  const answers = new Asks([])
  const { done, settle } = answers.answer('a1', { allow: true })
  settle.refused(tooLate, true)
  answers.settled('a1', answered)
  return done.then(
    () => 'taken',
    ({ code }: HoldfastClientError) => code,
  )
}

it('an ask that is opened has what it is about, and what it accepts', () => {
  const asks = new Asks(['permission'])
  const about = { detail: { command: 'make' }, accepts: ['message'], data: 1 } as const
  const base = { turn: 't1', kind: 'permission', question: '?', options: null, deadline: 9 }
  const ask = { ...base, onNobody: 'wait', ...about } as const
  expect(asks.opened({ type: 'ask.opened', seq: 1, at: 1, ask: 'a1', ...ask })).toEqual({
    id: 'a1',
    ...ask,
  })
})

describe('an answer that was sent twice and is refused as too late', () => {
  it('was taken if the log has it', async () => {
    expect(await refusedThenTold({ allow: true })).toBe('taken')
  })

  it('was too late if another one from the same place is in the log', async () => {
    expect(await refusedThenTold({ allow: false })).toBe('ask_settled')
  })

  it('was too late if another client has answered', async () => {
    expect(await refusedThenTold(undefined)).toBe('ask_settled')
  })

  it('is too late at once if the log had settled the ask before', async () => {
    const answers = new Asks([])
    answers.settled('a1', 'yes')
    const { done, settle } = answers.answer('a1', 'yes')
    settle.refused(tooLate, true)
    await expect(done).rejects.toBe(tooLate)
  })

  it('fails with the end of the session if that comes before the log says more', async () => {
    const answers = new Asks([])
    const { done, settle } = answers.answer('a1', 'yes')
    const left = new HoldfastClientError('left', 'this client has left')
    settle.refused(tooLate, true)
    answers.endAnswers(left)
    await expect(done).rejects.toBe(left)
  })
})
