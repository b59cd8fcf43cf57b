import { expect, it } from 'vitest'
import { checkAnswerers } from './check-answerers.ts'
import { gather } from './facts.ts'
import { History, type Happening } from './history.ts'
import { BEGINNING_MS } from './process.ts'

/** The only client that answers is lost at 1,000 and counts until 1,700; the answer is at 4,000. */
const LOG: readonly object[] = [
  { type: 'session.created', id: 's1', key: 'bob', reconnect: 'resume', graceMs: 8_000, at: 10 },
  { type: 'attachment.opened', attachment: 'a1', role: 'driver', answers: ['choice'], at: 20 },
  { type: 'turn.started', turn: 't3', input: 'x', at: 30 },
  {
    ...{ type: 'ask.opened', ask: 'a4', turn: 't3', kind: 'choice', question: 'q', options: null },
    ...{ deadline: BEGINNING_MS + 9_000, onNobody: 'deny', at: 40 },
  },
  {
    ...{ type: 'attachment.detached', attachment: 'a1', at: 1_000 },
    ...{ graceUntil: BEGINNING_MS + 9_000, answersUntil: BEGINNING_MS + 1_700 },
  },
  { type: 'ask.settled', ask: 'a4', turn: 't3', outcome: 'answered', answer: 'y', at: 4_000 },
]

/** `lossRecordedAt`: when the store answered that it has the loss. */
function violations(lossRecordedAt: number): readonly string[] {
  let now = 0
  const history = new History(1, false, () => now)
  const loss = { session: 's1', call: 1, node: 'node1', epoch: 1, after: 4, count: 1 } as const
  const latest = { epoch: 1, seq: 4, closed: false }
  const happenings: readonly (readonly [number, Happening])[] = [
    [1_001, { type: 'store.appended', ...loss, closed: false, latest }],
    [lossRecordedAt, { type: 'store.replied', call: 1, node: 'node1', failed: false }],
  ]
  for (const [at, happening] of happenings) {
    now = at
    history.record(happening)
  }
  const events = LOG.map((event, index) => {
    const { at } = event as { readonly at: number }
    const seq = index + 1
    return { seq, body: JSON.stringify({ ...event, seq, at: BEGINNING_MS + at }) }
  })
  history.logs.set('s1', { events, snapshots: [] })
  return [...checkAnswerers(gather(history))].map(({ message }) => message)
}

it('objects to an answer long after the last client that counts was gone', () => {
  expect(violations(1_010)).toEqual([`s1: a4 waited for no client since ${BEGINNING_MS + 1_700}`])
})

it('accepts an answer that waited while a slow store recorded the loss (seed 5118112297)', () => {
  expect(violations(3_990)).toEqual([])
})
