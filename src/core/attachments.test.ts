import { describe, expect, it } from 'vitest'
import {
  createSession,
  decide,
  evolve,
  type Command,
  type Session,
  type SessionEvent,
} from './session.ts'
import { STATE_LIMITS } from './limits.ts'

function session(...commands: readonly Command[]): Session {
  const life = { reconnect: 'resume', exclusive: false, graceMs: 1_000, ttlMs: null } as const
  const named = { id: 's', key: null, agent: 'echo', internal: false, labels: {} }
  const created = createSession({ type: 'session.created', seq: 1, at: 0, ...named, ...life })
  return commands.reduce(
    (before, command) =>
      decide(before, command).reduce(
        (state, draft) => evolve(state, { ...draft, seq: state.seq + 1, at: 0 }),
        before,
      ),
    created,
  )
}

const attach = (attachment: string): Command => ({
  ...{ type: 'attach', attachment, role: 'driver', answers: [], link: null, take: false, at: 0 },
  token: `${attachment}1`,
})
const resume = (attachment: string): Command => ({
  ...{ type: 'resume', attachment, answers: null },
  ...{ shown: `${attachment}1`, token: `${attachment}2` },
})

describe('clients that have their tokens', () => {
  const crowd = session(attach('a'), attach('b'), attach('c'), ...['a', 'b', 'c'].map(resume))
  const at = (...names: readonly string[]) => names.map((attachment) => ({ attachment, epoch: 2 }))

  it('are confirmed in one event, each once', () => {
    const confirm = { type: 'confirm', clients: at('a', 'c', 'a') } as const
    expect(decide(crowd, confirm)).toEqual([
      { type: 'attachment.confirmed', attachments: ['a', 'c'] },
    ])
  })

  it('lose the tokens before them, and are known by those as holders of old copies', () => {
    const { attachments } = session(...[attach('a'), attach('b'), resume('a'), resume('b')], {
      type: 'confirm',
      clients: at('b'),
    })
    expect(attachments.map(({ tokens, retired }) => [tokens, retired])).toEqual([
      [['a2', 'a1'], null],
      [['b2'], 'b1'],
    ])
  })

  it('are known from a log that names each in an event of its own', () => {
    const before = session(attach('a'), resume('a'))
    const stored = { type: 'attachment.confirmed', attachment: 'a', seq: before.seq + 1, at: 0 }
    const { attachments } = evolve(before, stored as unknown as SessionEvent)
    expect(attachments).toMatchObject([{ tokens: ['a2'], retired: 'a1' }])
  })

  it('are not confirmed for another connection, twice, or once they are gone', () => {
    const clients = [{ attachment: 'a', epoch: 1 }, { attachment: 'b', epoch: 3 }, ...at('x')]
    expect(decide(crowd, { type: 'confirm', clients })).toEqual([])
    const confirmed = session(attach('a'), resume('a'), { type: 'confirm', clients: at('a') })
    expect(decide(confirmed, { type: 'confirm', clients: at('a') })).toEqual([])
  })
})

it('a guest whose place another guest needed is not told that it was continued elsewhere', () => {
  const fresh = { scopes: ['watch'], digest: 'd', expiresAt: null, uses: null } as const
  const guest = (_: unknown, n: number): Command => {
    const role = { type: 'attach', role: 'watcher', answers: [], take: false, at: 0 } as const
    return { ...role, attachment: `g${n}`, link: 'l', token: `g${n}1` }
  }
  const guests = Array.from({ length: STATE_LIMITS.attachmentsPerLinkMax + 1 }, guest)
  const lose = { type: 'lose', attachment: 'g0', epoch: 1, at: 0 } as const
  const opened: Command = { type: 'link', link: { id: 'l', ...fresh }, at: 0 }
  const crowd = session(opened, ...guests.toSpliced(1, 0, lose))
  expect(() => decide(crowd, resume('g0'))).toThrow('the attachment is over: crowded_out')
})
