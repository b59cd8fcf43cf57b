import { describe, expect, it } from 'vitest'
import { brokenInLog, type LoggedEvent } from './log.ts'

const isOfTurn = (type: string): boolean => !type.startsWith('session.')

const log = (...types: (string | Partial<LoggedEvent>)[]): LoggedEvent[] =>
  types.map((item, index) => {
    const event =
      typeof item === 'string' ? { type: item, ...(isOfTurn(item) ? { turn: 't2' } : {}) } : item
    return { type: '', seq: index + 1, ...event }
  })

describe('the log checker', () => {
  it('finds nothing in a sound log', () => {
    const sound = log(
      'session.created',
      'turn.queued',
      'turn.started',
      'message.added',
      'turn.done',
    )
    expect(brokenInLog(sound, true)).toEqual([])
  })

  it.each([
    ['a gap', log('session.created', { type: 'turn.queued', turn: 't2', seq: 3 }), 'I4'],
    ['an event after the end', log('session.created', 'session.closed', 'turn.queued'), 'I4'],
    [
      'two turns at once',
      log('turn.started', { type: 'turn.started', turn: 'u' }, 'turn.done', {
        type: 'turn.done',
        turn: 'u',
      }),
      'I2',
    ],
    ['a turn that ends twice', log('turn.started', 'turn.done', 'turn.done'), 'I3'],
    [
      'a turn that starts twice',
      log('turn.started', 'turn.done', 'turn.started', 'turn.done'),
      'I3',
    ],
    ['a turn that never ends', log('turn.queued'), 'I3'],
    ['a message out of turn', log('turn.queued', 'message.added', 'turn.cancelled'), 'I3'],
    ['an ask that hangs', log({ type: 'ask.opened', ask: 'a' }), 'I8'],
    [
      'an ask settled twice',
      log(
        { type: 'ask.opened', ask: 'a' },
        { type: 'ask.settled', ask: 'a' },
        { type: 'ask.settled', ask: 'a' },
      ),
      'I8',
    ],
    [
      'a request that ran twice',
      log({ type: 'turn.started', turn: 't', keys: [{ key: 'k' }] }, 'turn.done', {
        type: 'turn.started',
        turn: 'u',
        keys: [{ key: 'k' }],
      }),
      'I11',
    ],
  ])('objects to %s', (_what, events, invariant) => {
    expect(brokenInLog(events, true).join()).toContain(invariant)
  })
})
