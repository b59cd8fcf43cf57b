import { expect, it } from 'vitest'
import { Batch } from './commits.ts'
import { HoldfastError } from './errors.ts'
import { LOCAL } from './state.ts'
import { createSession } from './session.ts'

const NEW = createSession({
  ...{ type: 'session.created', id: 's', key: null, agent: 'a', internal: false, labels: {} },
  ...{ reconnect: 'reopen', exclusive: false, graceMs: 0, ttlMs: null, seq: 1, at: 0 },
})
const turn = { input: 'hi', keys: [], by: [LOCAL], queuedAt: null }
const ask = { turn: 't2', kind: 'x', question: '?', options: null, deadline: 9 } as const

/** A batch in which an ask is opened and a later command settles it; a third is refused. */
function batchOf(done: string[]): Batch {
  const batch = new Batch(NEW, { at: 5, said: () => null, hasFollower: () => false })
  const answered = (name: string) => [
    () => done.push(`${name} answered`),
    () => done.push(`${name} refused`),
  ]
  const [asked, refused] = answered('ask')
  batch.add({ type: 'start', turn })
  batch.add({ type: 'ask', ask: { ...ask, onNobody: 'wait' } }, asked, refused)
  batch.add({ type: 'withdraw', turn: 't2' }, ...answered('withdraw'))
  batch.add({ type: 'start', turn }, ...answered('second start'))
  return batch
}

it('answers each caller after its own events and before the next ones', () => {
  const done: string[] = []
  batchOf(done).settle(({ type }) => done.push(type))
  expect(done).toEqual([
    'turn.started',
    ...['ask.opened', 'ask answered'],
    ...['ask.settled', 'withdraw answered'],
    'second start refused',
  ])
})

it('refuses every caller if it is not known to be durable', () => {
  const done: string[] = []
  batchOf(done).fail(new HoldfastError('stale_epoch', 'moved on'))
  expect(done).toEqual(['ask refused', 'withdraw refused', 'second start refused'])
})
