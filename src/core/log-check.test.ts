import { describe, expect, it } from 'vitest'
import { checkLog, LogCheck, type CheckedEvent, type LogRules } from './log-check.ts'

type Draft = Omit<CheckedEvent, 'seq'> & { readonly seq?: number }

const created = { type: 'session.created' }
const closed = { type: 'session.closed' }
const started = (turn: string): Draft => ({ type: 'turn.started', turn })
const queued = (turn: string): Draft => ({ type: 'turn.queued', turn })
const byA = (turn: string): Draft => ({ ...queued(turn), by: { id: 'a' } })
const moved = (turn: string, before: string | null): Draft => {
  return { type: 'turn.moved', turn, before, by: { id: 'a' } }
}
const said = (turn: string): Draft => ({ type: 'message.added', turn })
const done = (turn: string): Draft => ({ type: 'turn.done', turn })
const asked = (turn: string, ask: string): Draft => ({ type: 'ask.opened', turn, ask })
const settled = (turn: string, ask: string): Draft => ({ type: 'ask.settled', turn, ask })

/** The events get the numbers 1, 2, 3, … unless they have their own. */
function check(...drafts: readonly Draft[]) {
  const log = new LogCheck()
  for (const [index, draft] of drafts.entries()) log.add({ seq: index + 1, ...draft })
  return log.finish()
}

describe('a log', () => {
  it('is good if everything in it ends once, in order', () => {
    const findings = check(
      created,
      started('t2'),
      queued('t3'),
      asked('t2', 'a4'),
      settled('t2', 'a4'),
      said('t2'),
      { type: 'turn.activity', turn: 't2' },
      done('t2'),
      started('t3'),
      { type: 'turn.interrupted', turn: 't3' },
      { type: 'attachment.opened' },
      closed,
    )
    expect(findings).toEqual({ events: 12, turns: 2, problems: [], pending: [] })
  })

  it('may have turns that are not over, as long as the session is open', () => {
    const findings = check(created, started('t2'), queued('t3'))
    expect(findings).toMatchObject({ problems: [], pending: ['t2', 't3'] })
  })

  it.each<[string, readonly Draft[], string]>([
    ['nothing in it', [], 'no events'],
    ['no beginning', [started('t1')], 'begins with session.created'],
    ['two beginnings', [created, created], 'begins with session.created'],
    ['a gap', [created, { ...started('t3'), seq: 3 }], 'event 3 (turn.started) follows event 1'],
    ['a repeat', [created, { type: 'x', seq: 1 }], 'event 1 (x) follows event 1'],
    ['more after its end', [created, closed, { type: 'x' }], 'follows session.closed'],
    ['two turns at once', [created, started('t2'), started('t3')], 'turn t2 runs'],
    ['a turn that ends twice', [created, started('t2'), done('t2'), done('t2')], 't2 was over'],
    ['a turn that never ends', [created, started('t2'), closed], 'turn t2 never ended'],
    ['the end of no turn', [created, done('t2')], 't2 is not there'],
    ['words of a turn that does not run', [created, queued('t2'), said('t2')], 'does not run'],
    [
      'a turn that overtakes',
      [created, queued('t2'), queued('t3'), started('t3')],
      'turn t2 waits longer',
    ],
    [
      'a turn that overtakes after it was moved',
      [created, byA('t2'), byA('t3'), moved('t3', 't2'), started('t2')],
      'turn t3 waits longer',
    ],
    [
      "a turn that pushes another principal's back",
      [
        created,
        byA('t2'),
        queued('t3'),
        byA('t4'),
        moved('t4', 't2'),
        started('t4'),
        done('t4'),
        started('t2'),
      ],
      'turn t3 waits longer',
    ],
    [
      "a principal that moves another's turn",
      [created, queued('t2'), byA('t3'), moved('t2', null)],
      't2 may not',
    ],
    [
      'a move of a turn that does not wait',
      [created, byA('t2'), moved('t2', 't9')],
      't9 does not wait',
    ],
    ['a turn of another number', [created, started('t9')], 'should be t2'],
    [
      'an ask that outlives its turn',
      [created, started('t2'), asked('t2', 'a3'), done('t2')],
      'ask a3 outlives',
    ],
    [
      'an ask that is settled twice',
      [created, started('t2'), asked('t2', 'a3'), settled('t2', 'a3'), settled('t2', 'a3')],
      'ask a3 does not wait',
    ],
    ['an ask of a turn that does not run', [created, asked('t2', 'a2')], 'turn t2 does not run'],
  ])('is bad with %s', (_, drafts, problem) => {
    const { problems } = check(...drafts)
    expect(problems.join('\n')).toContain(problem)
  })

  it('that is all wrong is not told without end', () => {
    const { problems } = check(...Array.from({ length: 500 }, () => said('t1')))
    expect(problems).toHaveLength(21)
  })
})

describe('a rule that holds of some logs only', () => {
  const log: readonly CheckedEvent[] = [
    { seq: 1, type: 'session.created', at: 5 },
    { seq: 2, type: 'turn.started', turn: 't2', at: 4, keys: [{ key: 'k' }] },
    { seq: 3, type: 'turn.done', turn: 't2', at: 6 },
    { seq: 4, type: 'turn.started', turn: 't4', at: 6, keys: [{ key: 'k' }] },
    { seq: 5, type: 'ask.opened', turn: 't4', ask: 'a5', at: 6 },
  ]
  it.each<[LogRules, readonly string[]]>([
    [{}, []],
    [{ hasOrderedTimes: true }, ['I4']],
    [{ hasUniqueKeys: true }, ['I11']],
    [{ isAtRest: true }, ['I3', 'I8']],
  ])('is checked if asked for: %o', (rules, expected) => {
    expect(checkLog(log, rules).map(({ invariant }) => invariant)).toEqual(expected)
  })
})
