import { expect, it } from 'vitest'
import type { SessionEvent } from './events.ts'
import { recordTurn, type TurnRecord } from './turn-record.ts'

const event = (type: string, fields: object = {}) =>
  ({ type, turn: 't2', seq: 2, at: 1, ...fields }) as unknown as SessionEvent
const usage = (data: object) => event('turn.activity', { kind: 'usage', data })

it.each([
  ['nothing', [], null],
  [
    'what its agent reports, in all',
    [usage({ inputTokens: 3, costUsd: 0.5 }), usage({ inputTokens: 4, outputTokens: 1 })],
    { inputTokens: 7, outputTokens: 1, cachedTokens: 0, costUsd: 0.5 },
  ],
])('a turn has used %s', (_, events, used) => {
  const all = [event('turn.started', { input: 'x' }), ...events, event('turn.done')]
  const record = all.reduce<TurnRecord | null>(recordTurn, null)
  expect(record).toMatchObject({ state: 'done', usage: used })
})
