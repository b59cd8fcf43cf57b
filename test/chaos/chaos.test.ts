/** Three real nodes while everything goes wrong; and the checker, shown that it can object. */
import { describe, expect, it } from 'vitest'
import { chaos, ENOUGH } from './chaos.ts'
import { check, type History, type LogEvent } from './check.ts'
import { FAULTS } from './world.ts'

describe.runIf(process.env['DATABASE_URL'] === undefined)(
  'three nodes and one of each fault',
  () => {
    it('lose nothing, run nothing twice, settle every ask, and every client sees it all', async () => {
      const seed = Math.floor(Math.random() * 1e9)
      const faults = FAULTS.length
      const { problems, counts, ...report } = await chaos({ seed, faults })
      const replay = `npm run chaos -- --faults ${faults} --seed ${seed}`
      expect(problems, `${replay}\n${report.faults.join('\n')}`).toEqual([])
      expect(counts.acknowledged).toBeGreaterThan(ENOUGH.acknowledged)
      expect(counts.asks).toBeGreaterThan(ENOUGH.asks)
      expect(counts.answered).toBeGreaterThan(ENOUGH.answered)
      expect(counts.resumed).toBeGreaterThan(ENOUGH.resumed)
    }, 300_000)
  },
)

describe('the checker', () => {
  const log: readonly LogEvent[] = [
    { seq: 1, type: 'session.created' },
    { seq: 2, type: 'turn.started', turn: 't2', input: 'one' },
    { seq: 3, type: 'ask.opened', turn: 't2', ask: 'a3' },
    { seq: 4, type: 'ask.settled', turn: 't2', ask: 'a3', outcome: 'answered', answer: 'yes' },
    { seq: 5, type: 'turn.done', turn: 't2' },
    { seq: 6, type: 'turn.started', turn: 't6', input: 'two' },
    { seq: 7, type: 'turn.interrupted', turn: 't6' },
  ]
  const tick = (run: string) => ({ type: 'tick', session: 's', run }) as const
  const sane: History = {
    sent: [
      { key: 'k', text: 'one', answer: { session: 's', turn: 't2', reply: 'one' } },
      { key: 'k', text: 'two', answer: null },
    ],
    looks: [{ session: 's', known: 5, seq: 7 }],
    answers: [
      { session: 's', ask: 'a3', answer: 'yes', isTaken: true },
      { session: 's', ask: 'a3', answer: 'no', isTaken: false },
      { session: 's', ask: 'a3', answer: 'perhaps', isTaken: null },
    ],
    clients: [{ client: 'c', session: 's', events: log, problems: [] }],
    sessions: new Map([['k', ['s']]]),
    logs: new Map([['s', log]]),
    ends: new Map([['s', 7]]),
    testimony: [
      ...['9/t2', '9/t2', '8/t6', '9/t2', '8/t6'].map(tick),
      {
        type: 'told',
        session: 's',
        turn: 't2',
        outcome: { outcome: 'answered', answer: 'yes', by: null },
      },
      { type: 'append', session: 's', epoch: 1, after: 1 },
      { type: 'append', session: 's', epoch: 1, after: 5 },
      { type: 'claim', session: 's', epoch: 2, seq: 6 },
      { type: 'append', session: 's', epoch: 2, after: 6 },
    ],
    lateTicksMax: 2,
  }
  const withLog = (changed: readonly LogEvent[]): History => ({
    ...sane,
    clients: [],
    logs: new Map([['s', changed]]),
  })
  const withMore = (...more: History['testimony']): History => ({
    ...sane,
    testimony: [...sane.testimony, ...more],
  })
  const withEvents = (events: readonly LogEvent[]): History => ({
    ...sane,
    clients: [{ client: 'c', session: 's', events, problems: [] }],
  })

  it('has nothing against a history that is in order', () => {
    expect(check(sane)).toEqual([])
  })

  it.each<[string, History, RegExp]>([
    ['two ids for a key', { ...sane, sessions: new Map([['k', ['s', 'x']]]) }, /2 sessions/],
    ['a gap', withLog(log.filter(({ seq }) => seq !== 5)), /event 6 .* follows event 4/],
    [
      'a lost turn',
      withLog(
        log.filter(({ turn }) => turn !== 't2').map((e, index) => ({ ...e, seq: index + 1 })),
      ),
      /acknowledged as s\/t2, but is undefined/,
    ],
    [
      'a turn that ran twice',
      withLog(log.map((event) => (event.seq === 6 ? { ...event, input: 'one' } : event))),
      /one ran 2 times/,
    ],
    [
      'two turns at once',
      withLog(log.map((event) => (event.seq === 5 ? { ...event, type: 'delta' } : event))),
      /event 6 \(turn.started\): turn t2 runs/,
    ],
    ['a turn without an end', withLog(log.slice(0, 6)), /turn t6 never ended/],
    [
      'an ask without an outcome',
      withLog(log.map((event) => (event.seq === 4 ? { ...event, type: 'turn.activity' } : event))),
      /ask a3 was never settled/,
    ],
    [
      'an ask with two outcomes',
      withLog([...log, { seq: 8, type: 'ask.settled', ask: 'a3', turn: 't2' }]),
      /ask a3 does not wait/,
    ],
    [
      'a second answer that was taken too',
      {
        ...sane,
        answers: [...sane.answers, { session: 's', ask: 'a3', answer: 'me too', isTaken: true }],
      },
      /me too was taken for s\/a3, which is answered "yes"/,
    ],
    [
      'an agent that was told something else than the log',
      withMore({ type: 'told', session: 's', turn: 't2', outcome: { outcome: 'timed_out' } }),
      /heard timed_out, the log has answered "yes"/,
    ],
    [
      'a run that goes on after it was replaced',
      withMore(...['9/t2', '9/t2', '9/t2'].map(tick)),
      /went on for 4 ticks/,
    ],
    [
      'an append under an old epoch',
      withMore({ type: 'append', session: 's', epoch: 1, after: 6 }),
      /stale append to s after 6: epoch 1, claimed by 2/,
    ],
    [
      'an answer to somebody else',
      {
        ...sane,
        sent: [{ key: 'k', text: 'one', answer: { session: 's', turn: 't2', reply: 'two' } }],
      },
      /was answered with two/,
    ],
    [
      'a look at the past',
      { ...sane, looks: [{ session: 's', known: 5, seq: 1 }] },
      /shown at 1 when it was past 5/,
    ],
    [
      'a client that missed one',
      withEvents(log.toSpliced(3, 1)),
      /c was told 5 .* where 4 was due/,
    ],
    ['a client that was told twice', withEvents(log.toSpliced(3, 0, log[2]!)), /told 3 .* where 4/],
    ['a client that is behind', withEvents(log.slice(0, 5)), /c came to 5 of 7/],
    [
      'a client that was told what never happened',
      withEvents(log.with(6, { seq: 7, type: 'turn.done' })),
      /c was told 7 turn.done/,
    ],
    [
      'a client that was sent away',
      { ...sane, clients: [{ ...sane.clients[0]!, problems: ['ended'] }] },
      /c ended/,
    ],
  ])('objects to %s', (_, history, problem) => {
    expect(check(history).join('\n')).toMatch(problem)
  })
})
