/** Three real nodes while everything goes wrong; and the checker, shown that it can object. */
import { describe, expect, it } from 'vitest'
import { chaos } from './chaos.ts'
import { check, type History, type LogEvent } from './check.ts'

describe.runIf(process.env['DATABASE_URL'] === undefined)(
  'three nodes and one of each fault',
  () => {
    it('lose nothing, run nothing twice, and never two turns of a session at once', async () => {
      const seed = Math.floor(Math.random() * 1e9)
      const report = await chaos({ seed, faults: 6 })
      const replay = `npm run chaos -- --faults 6 --seed ${seed}\n${report.faults.join('\n')}`
      expect(report.problems, replay).toEqual([])
      expect(report.acknowledged).toBeGreaterThan(20)
    }, 180_000)
  },
)

describe('the checker', () => {
  const log: readonly LogEvent[] = [
    { seq: 1, type: 'session.created' },
    { seq: 2, type: 'turn.started', turn: 't2', input: 'one' },
    { seq: 3, type: 'turn.done', turn: 't2' },
    { seq: 4, type: 'turn.started', turn: 't4', input: 'two' },
    { seq: 5, type: 'turn.interrupted', turn: 't4' },
  ]
  const sane: History = {
    sent: [
      { key: 'k', text: 'one', answer: { session: 's', turn: 't2', reply: 'one' } },
      { key: 'k', text: 'two', answer: null },
    ],
    sessions: new Map([['k', ['s']]]),
    logs: new Map([['s', log]]),
    ticks: ['1 s 9/t2', '2 s 9/t2', '3 s 8/t4', '4 s 9/t2', '5 s 8/t4'],
  }
  const withLog = (changed: readonly LogEvent[]): History => ({
    ...sane,
    logs: new Map([['s', changed]]),
  })

  it('has nothing against a history that is in order', () => {
    expect(check(sane)).toEqual([])
  })

  it.each<[string, History, RegExp]>([
    ['two ids for a key', { ...sane, sessions: new Map([['k', ['s', 'x']]]) }, /2 sessions/],
    ['a gap', withLog(log.filter(({ seq }) => seq !== 3)), /event 3 says that it is 4/],
    [
      'a lost turn',
      withLog(
        log.filter(({ turn }) => turn !== 't2').map((e, index) => ({ ...e, seq: index + 1 })),
      ),
      /acknowledged as s\/t2, but is undefined/,
    ],
    [
      'a turn that ran twice',
      withLog(log.map((event) => (event.seq === 4 ? { ...event, input: 'one' } : event))),
      /one ran 2 times/,
    ],
    [
      'two turns at once',
      withLog(log.map((event) => (event.seq === 3 ? { ...event, type: 'delta' } : event))),
      /t4 starts while t2 runs/,
    ],
    ['a turn without an end', withLog(log.slice(0, 4)), /t4 never ends/],
    [
      'a run that goes on after it was replaced',
      { ...sane, ticks: [...sane.ticks, '6 s 9/t2', '7 s 9/t2', '8 s 9/t2'] },
      /went on for 4 ticks/,
    ],
    [
      'an answer to somebody else',
      {
        ...sane,
        sent: [{ key: 'k', text: 'one', answer: { session: 's', turn: 't2', reply: 'two' } }],
      },
      /was answered with two/,
    ],
  ])('objects to %s', (_, history, problem) => {
    expect(check(history).join('\n')).toMatch(problem)
  })
})
