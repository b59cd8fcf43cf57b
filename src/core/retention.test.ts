import { describe, expect, it } from 'vitest'
import {
  checkRetention,
  previewRetention,
  RetentionJudge,
  type RetentionRule,
} from './retention.ts'
import type { ListQuery, SessionRow } from './store.ts'

const NOW = 1_000_000_000
const DAY = 86_400_000

/** Newest first, as the store lists them. */
function judged(rules: readonly RetentionRule[], rows: readonly Partial<SessionRow>[]) {
  const judge = new RetentionJudge(checkRetention(rules), 30 * DAY)
  const plain = { labels: {}, agent: 'echo', principal: 'default', bytes: 10, updatedAt: NOW - 5 }
  return rows.map((row) => {
    const { rule, beyond } = judge.judge({ ...plain, ...row } as SessionRow, NOW)
    return `${rule ?? '-'} ${beyond ?? 'stays'}`
  })
}

describe('retention', () => {
  it('lets the first rule decide that a session matches, and else the limit', () => {
    const rules: RetentionRule[] = [
      { name: 'kept', labels: ['keep:yes'], keep: true },
      { name: 'bots', agents: ['bot'], labels: ['team:*'], ageMs: 0 },
      { name: 'alice', principals: ['alice', '@team'], ageMs: DAY },
    ]
    const old = { updatedAt: NOW - 31 * DAY }
    const found = judged(rules, [
      { ...old, labels: { keep: 'yes', team: 'a' }, agent: 'bot' },
      { labels: { keep: 'no', team: 'a' }, agent: 'bot' },
      { agent: 'bot', principal: 'alice' },
      { ...old, principal: '@team' },
      { ...old, agent: 'bot' },
      { labels: { toString: '' } },
    ])
    const expected = [
      'kept stays',
      'bots ageMs',
      'alice stays',
      'alice ageMs',
      '- ageMs',
      '- stays',
    ]
    expect(found).toEqual(expected)
  })

  it('keeps the newest by number and by bytes, each rule for itself', () => {
    const rules: RetentionRule[] = [
      { name: 'bots', agents: ['bot'], count: 2 },
      { name: 'rest', bytes: 25, ageMs: DAY },
    ]
    const bot = { agent: 'bot' }
    const found = judged(rules, [bot, {}, bot, { updatedAt: NOW - DAY }, {}, bot, {}, { bytes: 1 }])
    // One that is too old takes no room, and a small one behind a large one is not preferred to it.
    expect(found).toEqual([
      ...['bots stays', 'rest stays', 'bots stays', 'rest ageMs'],
      ...['rest stays', 'bots count', 'rest bytes', 'rest bytes'],
    ])
  })

  it('lets a session from an archive stay for a day', () => {
    const restored = { isRestored: true, updatedAt: NOW - DAY + 1 } as const
    const rules: RetentionRule[] = [{ name: 'none', count: 0 }]
    expect(judged(rules, [restored, { ...restored, updatedAt: NOW - DAY }])).toEqual([
      'none stays',
      'none count',
    ])
  })

  it('refuses rules that say nothing, too much, or something else', () => {
    const bad: readonly (readonly [unknown, string])[] = [
      [{}, 'rules must be'],
      [[null], 'rules.0 must be'],
      [[{ name: 'a' }], 'must have keep'],
      [[{ name: 'a', keep: true, count: 1 }], 'count would do nothing'],
      [[{ name: 'a', ageMs: -1 }], 'rules.0.ageMs'],
      [[{ name: 'a', ageMs: '1' }], 'rules.0.ageMs'],
      [[{ name: 'a', agents: [], count: 1 }], 'rules.0.agents'],
      [[{ name: 'a', labels: ['x'], count: 1 }], 'NAME:VALUE'],
      [[{ name: 'a', days: 1 }], 'rules.0.days is no field'],
      [[{ name: '', count: 1 }], 'rules.0.name'],
      [
        [
          { name: 'a', count: 1 },
          { name: 'a', count: 2 },
        ],
        'two rules',
      ],
    ]
    for (const [rules, problem] of bad) {
      expect(() => checkRetention(rules as RetentionRule[])).toThrow(problem)
    }
  })

  it('previews what would go, over all pages', async () => {
    const rows = Array.from({ length: 5 }, (_, n) => {
      return { id: `s${n}`, labels: {}, agent: 'echo', principal: 'p', bytes: n, updatedAt: 0 }
    })
    const list = async ({ cursor = '0', limit }: ListQuery) => {
      const from = Number(cursor)
      const sessions = rows.slice(from, from + limit) as unknown as SessionRow[]
      return { sessions, nextCursor: from + limit < rows.length ? String(from + limit) : null }
    }
    const rules = [{ name: 'three', count: 3 }]
    const limits = { retainMs: DAY, listMax: 2 }
    const { rules: counts, sessions } = await previewRetention({
      store: { list },
      rules,
      limits,
      now: NOW,
    })
    expect(counts).toEqual([
      { rule: 'three', kept: 3, keptBytes: 3, gone: 2, goneBytes: 7 },
      { rule: null, kept: 0, keptBytes: 0, gone: 0, goneBytes: 0 },
    ])
    expect(sessions.map(({ id, beyond }) => [id, beyond])).toEqual([
      ['s3', 'count'],
      ['s4', 'count'],
    ])
  })
})
