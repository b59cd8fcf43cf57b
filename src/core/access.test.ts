import { describe, expect, it } from 'vitest'
import {
  assertMay,
  groupId,
  principalOfKey,
  scopesOn,
  SCOPES,
  withIncluded,
  type Access,
  type Caller,
  type Scope,
} from './access.ts'
import { LOCAL, type Session, type Share } from './state.ts'

const TALK = withIncluded(['talk', 'answer'])

function caller(access: Partial<Access> | null): Caller {
  const none = { principal: 'bob', groups: [], scopes: TALK }
  return { by: LOCAL, access: access === null ? null : { ...none, ...access } }
}

function session(principal: string, ...shares: readonly Share[]) {
  return { id: 's1', principal, shares, agent: 'echo' } as unknown as Session
}

const bearer = (name: string): Share => ({ with: name, scopes: [] })
const watch = (principal: string): Share => ({ with: principal, scopes: ['watch'] })

describe('scopesOn', () => {
  it.each<[string, Partial<Access> | null, Session, readonly Scope[]]>([
    ['everything to the program itself', null, session('alice'), SCOPES],
    ['everything to admin', { scopes: SCOPES }, session('alice'), SCOPES],
    ['what it was granted, on its own', {}, session('bob'), TALK],
    ['nothing on that of another', {}, session('alice'), []],
    ['nothing on what is shared with others', {}, session('alice', watch('carol')), []],
    ['nothing to one that is called like a bearer', {}, session('a', bearer('bob')), []],
    ['what a share says', {}, session('alice', watch('bob')), ['watch']],
    [
      'never more than it was granted',
      { scopes: ['watch'] },
      session('alice', { with: 'bob', scopes: ['talk', 'answer'] }),
      ['watch'],
    ],
    ['what a share with a group says', { groups: ['@t'] }, session('a', watch('@t')), ['watch']],
    ['what it was granted, on that of its group', { groups: ['@t'] }, session('@t'), TALK],
    ['nothing for a principal that is called like a group', {}, session('@bob'), []],
    ['no use of an agent that is not its', { agents: ['slow'] }, session('bob'), ['watch']],
    ['the use of an agent that is its', { agents: ['echo'] }, session('bob'), TALK],
    [
      'to admin no use of an agent that is not its',
      { scopes: SCOPES, agents: ['slow'] },
      session('alice'),
      ['watch', 'manage', 'admin'],
    ],
    [
      'everything to admin with an agent that is its',
      { scopes: SCOPES, agents: ['echo'] },
      session('alice'),
      SCOPES,
    ],
    ['of a link only its session', { session: 's1', principal: '' }, session('alice'), TALK],
    ['of a link no other session', { session: 's2', principal: '' }, session('alice'), []],
    ['of a link no session without a principal', { session: 's2', principal: '' }, session(''), []],
  ])('gives %s', (_, access, whose, expected) => {
    expect(scopesOn(caller(access), whose)).toEqual(expected)
  })
})

describe('principalOfKey', () => {
  const sharedKeys = [{ prefix: 'team/', group: groupId('team') }]

  it.each([
    ['alone', null, 'team/x', 'default'],
    ['by its principal', {}, 'team/x', 'bob'],
    ['of a shared prefix by the group', { sharedKeys }, 'team/x', '@team'],
    ['of another prefix by its principal', { sharedKeys }, 'teams', 'bob'],
    ['without a key by its principal', { sharedKeys }, null, 'bob'],
  ])('names whose a key is: %s', (_, access, key, expected) => {
    expect(principalOfKey(caller(access), key)).toBe(expected)
  })
})

describe('assertMay', () => {
  async function refusal(held: Session | null, stored: Session | null, access: Partial<Access>) {
    const reads: unknown[] = []
    const source = {
      heldSession: () => held,
      store: {
        read: async (...given: readonly unknown[]) => {
          reads.push(given)
          return { row: stored as never, events: [] }
        },
      },
    }
    const error = await assertMay(source, caller(access), 's1', 'turn.run').then(
      () => null,
      (thrown: Error) => thrown.message,
    )
    return { error, reads }
  }

  it('refuses what it may not see as what is not there, by the same read', async () => {
    const unknown = await refusal(null, null, { groups: ['@t'] })
    const foreign = session('alice')
    expect(await refusal(foreign, null, { groups: ['@t'] })).toEqual(unknown)
    // Of a store that does not look at who asks.
    expect(await refusal(null, foreign, { groups: ['@t'] })).toEqual(unknown)
    const reads = [['s1', 0, 0, ['bob', '@t']]]
    expect(unknown).toEqual({ error: 'there is no session s1', reads })
  })

  it('asks the store for what a link leads to, and for nothing else', async () => {
    const guest = { principal: '', session: 's1' }
    const { error, reads } = await refusal(null, session('alice'), guest)
    expect([error, reads]).toEqual([null, [['s1', 0, 0, undefined]]])
    const other = await refusal(null, null, { ...guest, session: 's2' })
    expect(other.reads).toEqual([['s1', 0, 0, []]])
  })

  it('asks the store for nothing if the session is held', async () => {
    expect(await refusal(session('bob'), null, {})).toEqual({ error: null, reads: [] })
  })

  it('keeps admin from the use of an agent that is not its, in memory or not', async () => {
    const access = { scopes: SCOPES, agents: ['slow'] }
    for (const [held, stored] of [
      [session('alice'), null] as const,
      [null, session('alice')] as const,
    ]) {
      expect((await refusal(held, stored, access)).error).toContain('it needs talk')
      expect((await refusal(held, stored, { ...access, agents: ['echo'] })).error).toBe(null)
    }
    expect((await refusal(null, null, access)).error).toBe('there is no session s1')
  })

  it('says what is missing of a session that it may see', async () => {
    const { error } = await refusal(session('alice', watch('bob')), null, {})
    expect(error).toContain('it needs talk')
  })
})
