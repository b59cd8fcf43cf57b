import { describe, expect, it } from 'vitest'
import { LOCAL, type Session } from './state.ts'
import { connectedAs } from './attachments.ts'
import type { Command as AnyCommand } from './commands.ts'
import { asHoldfastError } from './errors.ts'
import type { Draft, SessionEvent } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import { createSession, decide as decideAt, evolve } from './session.ts'

/** A command, when it is decided, and what the running turn has said by then. */
type Command = AnyCommand & { readonly at?: number; readonly said?: string }

function decide(before: Session, command: Command): readonly Draft[] {
  const { at = 0, said = null } = command
  return decideAt(before, command, { at, said: () => said, hasFollower: () => false })
}

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

const attach = (attachment: string): Command & { type: 'attach' } => ({
  ...{ type: 'attach', attachment, answers: [], link: null, take: false, at: 0 },
  token: `${attachment}1`,
  by: LOCAL,
})
const resume = (attachment: string): Command => ({
  ...{ type: 'resume', attachment, answers: null, at: 0, by: LOCAL },
  ...{ shown: `${attachment}1`, token: `${attachment}2` },
})

const lose = (attachment: string, at: number): Command => ({
  ...{ type: 'lose', attachment, epoch: 1, at, answerGraceMs: 5 },
})
const guest = (attachment: string, by: string): Command => ({ ...attach(attachment), link: by })
const link = (id: string): Command => ({
  ...{ type: 'link', at: 0, by: LOCAL },
  link: { id, scopes: ['talk'], digest: id, expiresAt: null, uses: null },
})
const many = (length: number, make: (n: number) => Command): readonly Command[] =>
  Array.from({ length }, (_, n) => make(n))

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
  const guests = many(STATE_LIMITS.attachmentsPerLinkMax + 1, (n) => guest(`g${n}`, 'l'))
  const crowd = session(link('l'), ...guests.toSpliced(1, 0, lose('g0', 0)))
  expect(() => decide(crowd, resume('g0'))).toThrow('the attachment is over: crowded_out')
})

describe('a session that is full', () => {
  const { attachmentsMax, attachmentsPerLinkMax, guestsMax } = STATE_LIMITS
  const full = [...many(attachmentsMax, (n) => attach(`d${n}`))]
  const endedBy = (before: Session, command: Command): readonly string[] =>
    decide(before, command).flatMap((event) =>
      event.type === 'attachment.ended' ? [event.attachment, event.reason] : [],
    )

  it('lets a driver in, in place of the one that was lost first', () => {
    const crowd = session(...full, lose('d7', 20), lose('d9', 10), lose('d3', 30))
    expect(endedBy(crowd, attach('new'))).toEqual(['d9', 'crowded_out'])
  })

  it('takes the places of the caller that has left most behind', () => {
    const by = (id: string) => ({ by: { kind: 'token', issuer: 'holdfast', id } }) as const
    const crowd = many(attachmentsMax - 1, (n) => ({ ...attach(`c${n}`), ...by('crowd') }))
    const other = { ...attach('other'), ...by('other') }
    const full = session(other, lose('other', 10), ...crowd, lose('c5', 30), lose('c4', 40))
    for (const whose of ['crowd', 'other']) {
      expect(endedBy(full, { ...attach('new'), ...by(whose) })).toEqual(['c5', 'crowded_out'])
    }
  })

  it('refuses a driver only if all that are there are connected', () => {
    expect(() => decide(session(...full), attach('new'))).toThrow('too many attachments')
  })

  it('takes the place of a guest before that of a client without a link', () => {
    const guests = [link('l'), guest('g', 'l'), lose('g', 50)]
    const crowd = session(...guests, ...full.slice(1), lose('d9', 10))
    expect(endedBy(crowd, attach('new'))).toEqual(['g', 'crowded_out'])
  })

  it('never lets a guest take the place of a client without a link', () => {
    const crowd = session(link('l'), ...full, lose('d9', 10))
    expect(() => decide(crowd, guest('g', 'l'))).toThrow('too many attachments')
  })

  it('keeps room for clients without a link, however many guests are connected', () => {
    const links = many(guestsMax / attachmentsPerLinkMax + 1, (n) => link(`l${n}`))
    const guests = many(guestsMax, (n) => guest(`g${n}`, `l${n % (links.length - 1)}`))
    const crowd = session(...links, ...guests)
    expect(() => decide(crowd, guest('more', `l${links.length - 1}`))).toThrow('too many')
    expect(endedBy(crowd, attach('new'))).toEqual([])
  })
})

describe('the log of 0.1.0', () => {
  const stored = (type: string, body: object): SessionEvent =>
    ({ type, seq: 0, at: 40, attachment: 'a', ...body }) as unknown as SessionEvent
  const fold = (before: Session, ...events: readonly SessionEvent[]): Session =>
    events.reduce((state, event) => evolve(state, { ...event, seq: state.seq + 1 }), before)
  const opened = (role: string) => stored('attachment.opened', { role, answers: ['x'] })

  it('has watchers, which end when the session is taken over', () => {
    const before = fold(session(attach('d')), opened('watcher'))
    const recover = { type: 'recover', at: 50, reason: 'node_lost', answerGraceMs: 5 } as const
    expect(decide(before, recover)).toMatchObject([
      { type: 'attachment.ended', attachment: 'a', reason: 'connection_lost' },
      { type: 'attachment.detached', attachment: 'd', graceUntil: 1_050, answersUntil: 55 },
    ])
  })

  it('closes a session that only watchers held', () => {
    const recover = { type: 'recover', at: 50, reason: 'node_lost', answerGraceMs: 5 } as const
    const events = decide(fold(session(), opened('watcher')), recover)
    expect(events.map(({ type }) => type)).toEqual(['attachment.ended', 'session.closed'])
  })

  it('says nothing of the time for answers: a lost driver has the usual one', () => {
    const lost = stored('attachment.detached', { graceUntil: 90_000 })
    const { attachments } = fold(session(), opened('driver'), lost)
    expect(attachments).toMatchObject([{ state: 'detached', answersUntil: 30_040 }])
  })
})

describe('a connection', () => {
  const one = { attachment: 'a', epoch: 1 }
  const code = (...commands: readonly Command[]): string => {
    try {
      return connectedAs(session(attach('b'), ...commands), one).state
    } catch (error) {
      return asHoldfastError(error).code
    }
  }
  const leave: Command = { type: 'leave', attachment: 'a', reason: 'left', at: 0 }

  it.each<[string, readonly Command[]]>([
    ['live', [attach('a')]],
    // The hold was lost meanwhile, and the next one counts every connection as lost.
    ['lease_lost', [attach('a'), lose('a', 0)]],
    ['superseded', [attach('a'), resume('a')]],
    ['attachment_ended', [attach('a'), leave]],
    ['session_closed', [attach('a'), { type: 'close', reason: 'closed', by: null }]],
  ])("is its attachment's own, or is told why not: %s", (expected, commands) => {
    expect(code(...commands)).toBe(expected)
  })
})

it('what the running turn has said is kept when the last holder is gone', () => {
  const started = { input: 'hi', keys: [], queuedAt: null, by: [LOCAL] }
  const turn: Command = { type: 'start', turn: started }
  const said = 'so far'
  const running = session(link('l'), guest('g', 'l'), turn)
  const away = session(link('l'), guest('g', 'l'), turn, lose('g', 0))
  const partial = { type: 'message.added', text: said, partial: true }
  const ends: readonly [Session, Command][] = [
    [running, { type: 'leave', attachment: 'g', reason: 'left', at: 0, said }],
    [running, { type: 'unlink', link: 'l', at: 0, by: LOCAL, said }],
    [away, { type: 'lapse', attachment: 'g', graceUntil: 1_000, said }],
    [
      { ...running, reconnect: 'none' },
      { ...lose('g', 0), said },
    ],
  ]
  for (const [before, command] of ends) {
    const events = decide(before, command)
    expect(events).toContainEqual(expect.objectContaining(partial))
    expect(events.at(-1)).toMatchObject({ type: 'session.closed', reason: 'last_holder_left' })
  }
})
