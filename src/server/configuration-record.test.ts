import { describe, expect, it } from 'vitest'
import { changedBetween, digestOf, fingerprintOf } from './configuration-record.ts'

const SETTINGS = {
  agents: { claude: { command: 'claude', args: ['-p'], env: { KEY: 'a secret' }, cwd: undefined } },
  limits: { waitMs: 1_000 },
  jwt: [{ issuer: 'https://id.example', scopes: ['talk'] }],
  flags: { host: '127.0.0.1', port: 7_420, tokens: null },
}

const changes = (after: object): readonly string[] =>
  changedBetween(fingerprintOf(SETTINGS, 'salt'), fingerprintOf(after, 'salt'))

describe('a fingerprint', () => {
  it('has the paths of settings, and no value', () => {
    const { digests } = fingerprintOf(SETTINGS, 'salt')
    expect(Object.keys(digests)).toEqual([
      ...['agents.claude.command', 'agents.claude.args', 'agents.claude.env.KEY'],
      ...['limits.waitMs', 'jwt.0.issuer', 'jwt.0.scopes', 'flags.host', 'flags.port'],
    ])
    for (const digest of Object.values(digests)) expect(digest).toMatch(/^[0-9a-f]{4}$/)
  })

  it.each<[string, object, readonly string[]]>([
    ['nothing', structuredClone(SETTINGS), []],
    ['a value', { ...SETTINGS, limits: { waitMs: 2_000 } }, ['limits.waitMs']],
    ['its type', { ...SETTINGS, limits: { waitMs: '1000' } }, ['limits.waitMs']],
    ['one that is new', { ...SETTINGS, sharedKeys: { 'team/': 'team' } }, ['sharedKeys.team/']],
    ['one that is gone', { ...SETTINGS, jwt: [] }, ['jwt.0.issuer', 'jwt.0.scopes']],
    [
      'a part of a list',
      { ...SETTINGS, jwt: [{ issuer: 'https://id.example', scopes: ['talk', 'admin'] }] },
      ['jwt.0.scopes'],
    ],
  ])('tells that %s has changed', (_, after, expected) => {
    expect(changes(after)).toEqual(expected)
  })

  it('is bounded, and notices a change beyond its bound', () => {
    const many = (value: number): object =>
      Object.fromEntries(Array.from({ length: 2_000 }, (_, index) => [`n${index}`, value]))
    const before = fingerprintOf(many(1), 'salt')
    expect(Object.keys(before.digests)).toHaveLength(1_001)
    const after = fingerprintOf({ ...many(1), n1999: 2 }, 'salt')
    expect(changedBetween(before, after)).toEqual(['(more)'])
  })

  it('of a configuration that contains itself, or programs, can be made', () => {
    const self: Record<string, unknown> = { run: () => 'x', made: new Map([['a', 1]]) }
    self['self'] = self
    const first = fingerprintOf({ agents: { self } }, 'salt')
    expect(digestOf(first)).toBe(digestOf(fingerprintOf({ agents: { self } }, 'salt')))
    self['run'] = () => 'y'
    expect(digestOf(first)).not.toBe(digestOf(fingerprintOf({ agents: { self } }, 'salt')))
  })
})
