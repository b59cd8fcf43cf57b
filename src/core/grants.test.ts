import { describe, expect, it } from 'vitest'
import type { SessionEvent } from './events.ts'
import { findGrant, namedGrants } from './grants.ts'
import { createSession, decide, evolve } from './session.ts'
import { LOCAL, type Grant, type Session } from './state.ts'

const digest = (data: string | Uint8Array): string => `${data.length}${String(data)}`
const MOMENT = { at: 2, said: () => null, hasFollower: () => false }
const [ONE, TWO]: readonly [Grant, Grant] = [
  { label: 'ls', data: { rule: 'ls' } },
  { label: 'ls', data: { rule: 'ls -l' } },
]

const OPTIONS = { key: null, agent: 'a', internal: false, reconnect: 'reopen' } as const
const CREATED = createSession({
  ...{ type: 'session.created', id: 's', ...OPTIONS, exclusive: false, graceMs: 0, ttlMs: null },
  ...{ labels: {}, seq: 1, at: 1 },
})

function after(session: Session, ...drafts: readonly object[]): Session {
  return drafts.reduce<Session>((before, draft) => {
    return evolve(before, { ...draft, seq: before.seq + 1, at: 2 } as SessionEvent)
  }, session)
}

const granted = after(CREATED, {
  type: 'session.granted',
  ask: 'a1',
  grants: [ONE, TWO],
  by: LOCAL,
})
const ungrant = (session: Session, grant: Grant) =>
  decide(session, { type: 'ungrant', grant, by: LOCAL }, MOMENT)

describe('a grant', () => {
  it('has a name of its own, by which it is found', () => {
    const names = namedGrants(granted, digest).map(({ id }) => id)
    expect(new Set(names).size).toBe(2)
    expect(names.map((id) => findGrant(granted, id, digest))).toEqual([ONE, TWO])
    expect(findGrant(granted, 'none', digest)).toBeUndefined()
  })

  it('is taken back alone, once, and can be given again', () => {
    const drafts = ungrant(granted, TWO)
    expect(drafts).toEqual([{ type: 'session.ungranted', grants: [TWO], by: LOCAL }])
    const without = after(granted, ...drafts)
    expect(without.grants).toEqual([ONE])
    expect(ungrant(without, TWO)).toEqual([])
    expect(after(without, { type: 'session.granted', grants: [TWO] }).grants).toEqual([ONE, TWO])
  })

  it('ends with its session: then there is nothing to take back', () => {
    const closed = after(granted, { type: 'session.closed', reason: 'closed' })
    expect(closed.grants).toEqual([])
    expect(ungrant(closed, ONE)).toEqual([])
  })
})
