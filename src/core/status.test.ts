import { expect, it } from 'vitest'
import type { SessionEvent } from './events.ts'
import type { Session } from './state.ts'
import { statusAfter } from './commits.ts'

const REST = { closed: null, asks: [], running: null, queued: [] }
const busy = { running: {}, queued: [{}, {}] }

it.each([
  ['with an open ask', { ...busy, asks: [{}] }, [], { status: 'waiting', queuedTurns: 2 }],
  ['with a running turn', busy, ['turn.failed'], { status: 'running', queuedTurns: 2 }],
  ['with queued turns only', { queued: [{}] }, [], { status: 'queued', queuedTurns: 1 }],
  ['after a failed turn', {}, ['turn.failed', 'attachment.ended'], { status: 'failed' }],
  ['after a turn that is done', {}, ['turn.failed', 'turn.done'], { status: 'idle' }],
  ['after a cancelled turn', {}, ['turn.cancelled'], { status: 'idle' }],
  ['after events of no turn, as before', {}, ['attachment.ended'], {}],
  ['when it is closed, as its state says', { closed: {} }, ['turn.cancelled'], {}],
] as const)('a session is shown %s', (_, state, types, expected) => {
  const events = types.map((type) => ({ type }) as SessionEvent)
  expect(statusAfter({ ...REST, ...state } as unknown as Session, events)).toEqual(expected)
})
