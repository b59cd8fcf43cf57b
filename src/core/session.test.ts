import { describe, expect, it } from 'vitest'
import { unanswerableAt } from './asks.ts'
import { LOCAL, type ReconnectPolicy, type Session } from './state.ts'
import type { Command as AnyCommand } from './commands.ts'
import type { Draft } from './events.ts'
import { createSession, decide, evolve, expiresAt } from './session.ts'

/** A command, and when it is decided. */
type Command = AnyCommand & { readonly at?: number }

const created = (reconnect: ReconnectPolicy = 'reopen'): Session =>
  createSession({
    type: 'session.created',
    id: 's',
    key: 'k',
    agent: 'echo',
    internal: false,
    reconnect,
    exclusive: false,
    graceMs: 100,
    ttlMs: 1_000,
    labels: {},
    seq: 1,
    at: 0,
  })

/** Runs commands one after the other; returns the session and the events of the last one. */
function run(session: Session, ...commands: Command[]): { session: Session; events: Draft[] } {
  let events: Draft[] = []
  let state = session
  for (const command of commands) {
    events = [
      ...decide(state, command, {
        at: command.at ?? 0,
        said: () => null,
        hasFollower: () => false,
      }),
    ]
    for (const draft of events) {
      state = evolve(state, { ...draft, seq: state.seq + 1, at: 10 })
    }
  }
  return { session: state, events }
}

const after = (session: Session, ...commands: Command[]): Session =>
  run(session, ...commands).session
const types = (session: Session, ...commands: Command[]): string[] =>
  run(session, ...commands).events.map(({ type }) => type)
const refusal = (session: Session, ...commands: Command[]): string => {
  try {
    run(session, ...commands)
  } catch (error) {
    return (error as { code: string }).code
  }
  return 'none'
}

const submit = (input = 'hi', key?: string, joins?: string): Command => ({
  type: 'submit',
  input,
  keys: key === undefined ? [] : [{ key, digest: input }],
  collect: joins !== undefined,
  joins: joins ?? null,
  expiresAt: null,
  queuedAt: null,
  by: LOCAL,
})
const admit = (input = 'hi'): Command => ({
  type: 'start',
  turn: { input, keys: [], by: [LOCAL], queuedAt: null },
})
const finish = (turn: string): Command => ({
  type: 'finish',
  turn,
  end: { state: 'done', reply: { text: 'yes' } },
})
const ask = (turn: string, onNobody: 'wait' | 'deny' = 'wait', at = 0): Command => ({
  type: 'ask',
  at,
  ask: {
    turn,
    kind: 'permission',
    question: 'may I?',
    options: [{ id: 'allow', label: 'Allow' }],
    deadline: 50,
    onNobody,
  },
})
const attach = (attachment: string, answers: string[] = []): Command => ({
  type: 'attach',
  attachment,
  answers,
  token: null,
  link: null,
  at: 0,
  take: false,
  by: LOCAL,
})

describe('turns', () => {
  it('names a turn by the place in the log where it was admitted', () => {
    expect(after(created(), admit()).running?.id).toBe('t2')
    expect(after(created(), submit(), submit()).queued.map(({ id }) => id)).toEqual(['t2', 't3'])
  })

  it('starts no turn while another runs (I2)', () => {
    expect(refusal(created(), admit(), admit())).toBe('session_busy')
    expect(refusal(created(), submit(), admit(), { type: 'start', turn: 't2' })).toBe(
      'session_busy',
    )
  })

  it('records the reply and the end together', () => {
    expect(types(created(), admit(), finish('t2'))).toEqual(['message.added', 'turn.done'])
  })

  it('ends a turn once: a second end, and output after it, is refused (I3)', () => {
    const ended = after(created(), admit(), finish('t2'))
    expect(refusal(ended, finish('t2'))).toBe('turn_over')
    expect(refusal(ended, { type: 'message', turn: 't2', reply: { text: 'late' } })).toBe(
      'turn_over',
    )
    expect(refusal(ended, ask('t2'))).toBe('turn_over')
    const activity = { kind: 'usage', data: 1 }
    expect(refusal(ended, { type: 'activity', turn: 't2', activity })).toBe('turn_over')
  })

  it('collects only into the last turn that waits and was collected itself', () => {
    const collected = after(created(), submit('a', 'k1', ''), submit('b', 'k2', 't2'))
    expect(collected.queued).toMatchObject([{ id: 't2', input: 'a\n\nb' }])
    expect(collected.queued[0]?.keys.map(({ key }) => key)).toEqual(['k1', 'k2'])
    expect(types(created(), submit('a'), submit('b', undefined, 't2'))).toEqual(['turn.queued'])
    expect(types(created(), submit('a', 'k1', ''), submit('b', 'k2', ''))).toEqual(['turn.queued'])
  })

  it('expires a turn that waits, and leaves one that runs alone', () => {
    const expire = { type: 'finish', turn: 't2', end: { state: 'expired' } } as const
    expect(types(created(), submit(), expire)).toEqual(['turn.expired'])
    expect(types(created(), submit(), { type: 'start', turn: 't2' }, expire)).toEqual([])
  })

  it('binds a backend session once', () => {
    const bind = (backend: string): Command => ({ type: 'bind', backend })
    expect(types(created(), bind('x'))).toEqual(['session.bound'])
    expect(types(created(), bind('x'), bind('x'))).toEqual([])
    expect(refusal(created(), bind('x'), bind('y'))).toBe('backend_bound')
  })
})

describe('asks (I8)', () => {
  const running = after(created(), admit())
  const answer = (value: unknown): Command => ({
    type: 'answer',
    ask: 'a3',
    answer: value,
    by: LOCAL,
    attachment: null,
  })

  it('takes the first valid answer and no other', () => {
    expect(refusal(running, ask('t2'), answer('perhaps'))).toBe('invalid_answer')
    expect(run(running, ask('t2'), answer('allow')).events).toMatchObject([
      { type: 'ask.settled', outcome: 'answered', answer: 'allow' },
    ])
    expect(refusal(running, ask('t2'), answer('allow'), answer('allow'))).toBe('ask_settled')
    expect(refusal(running, answer('allow'))).toBe('ask_unknown')
  })

  it('gives a deadline an outcome of its own, and only to an ask that still waits', () => {
    const timeout = { type: 'timeout', ask: 'a3' } as const
    expect(run(running, ask('t2'), timeout).events).toMatchObject([{ outcome: 'timed_out' }])
    expect(types(running, ask('t2'), answer('allow'), timeout)).toEqual([])
  })

  it('withdraws what is open when its turn ends', () => {
    expect(types(running, ask('t2'), finish('t2'))).toEqual([
      'ask.settled',
      'message.added',
      'turn.done',
    ])
  })

  it('settles at once when no client can answer and that means no', () => {
    expect(types(running, ask('t2', 'deny'))).toEqual(['ask.opened', 'ask.settled'])
    const watched = after(created(), attach('p', ['permission']), admit())
    expect(types(watched, ask('t3', 'deny'))).toEqual(['ask.opened'])
  })

  describe('of which a client was lost that answers them', () => {
    const asked = after(created(), attach('p', ['permission']), admit(), ask('t3', 'deny'))
    const lose = { type: 'lose', attachment: 'p', epoch: 1, at: 10, answerGraceMs: 5 } as const
    const lost = after(asked, lose)
    const unanswerable = (at: number): Command => ({ type: 'unanswerable', at })
    const nobody = { type: 'ask.settled', outcome: 'nobody_to_ask' }
    const none = (): boolean => false

    it('wait for it a short time, and then settle', () => {
      expect(unanswerableAt(asked, none)).toBeNull()
      expect(unanswerableAt(lost, none)).toBe(15)
      expect(types(lost, unanswerable(14))).toEqual([])
      expect(run(lost, unanswerable(15)).events).toMatchObject([nobody])
    })

    it('settle for the same reason if the deadline is heard of first', () => {
      const { id } = asked.asks[0]!
      const lostLate = after(asked, { ...lose, at: asked.asks[0]!.deadline - 4 })
      const timeout = { type: 'timeout', ask: id } as const
      expect(run(lost, timeout).events).toMatchObject([nobody])
      expect(run(lostLate, timeout).events).toMatchObject([{ outcome: 'timed_out' }])
    })

    it('settle with its end, if that comes first', () => {
      const leave = { type: 'leave', attachment: 'p', reason: 'left', at: 12 } as const
      expect(run(lost, leave).events).toMatchObject([{ type: 'attachment.ended' }, nobody])
    })

    it('go on if it comes back in time', () => {
      const resume = { type: 'resume', attachment: 'p', answers: null, at: 14, by: LOCAL } as const
      const back = after(lost, { ...resume, shown: null, token: null })
      expect(types(back, unanswerable(15))).toEqual([])
      expect(unanswerableAt(back, none)).toBeNull()
    })

    it('are opened within that time, and settled at once after it', () => {
      const quiet = after(created(), attach('p', ['permission']), admit(), lose)
      expect(types(quiet, ask('t3', 'deny', 14))).toEqual(['ask.opened'])
      expect(types(quiet, ask('t3', 'deny', 15))).toEqual(['ask.opened', 'ask.settled'])
      expect(types(quiet, ask('t3', 'wait', 15))).toEqual(['ask.opened'])
    })

    it('settle when the last one that is connected leaves after it', () => {
      const two = after(lost, attach('q', ['permission']))
      const leave = { type: 'leave', attachment: 'q', reason: 'left' } as const
      expect(types(two, { ...leave, at: 14 })).toEqual(['attachment.ended'])
      expect(types(two, { ...leave, at: 15 })).toEqual(['attachment.ended', 'ask.settled'])
    })

    it('go on while a follower of all asks answers their kind, and settle once it is gone', () => {
      const follows = (kind: string): boolean => kind === 'permission'
      const moment = { at: 99, said: () => null, hasFollower: follows }
      expect(unanswerableAt(lost, follows)).toBeNull()
      expect(decide(lost, unanswerable(99), moment)).toEqual([])
      expect(decide(created(), unanswerable(99), moment)).toEqual([])
      const alone = after(created(), admit())
      expect(decide(alone, ask('t2', 'deny', 99), moment)).toHaveLength(1)
      const left = { ...lost, attachments: [] }
      expect(unanswerableAt(left, follows)).toBeNull()
      expect(unanswerableAt(left, none)).toBe(Number.NEGATIVE_INFINITY)
      const gone = { ...moment, hasFollower: none }
      expect(decide(left, unanswerable(-Infinity), gone)).toMatchObject([nobody])
    })

    it('go on waiting if their turn said so', () => {
      const waiting = after(created(), attach('p', ['permission']), admit(), ask('t3'), lose)
      expect(unanswerableAt(waiting, none)).toBeNull()
      expect(types(waiting, unanswerable(99))).toEqual([])
    })
  })

  it('count no watcher, which only a log of 0.1.0 has', () => {
    const opened = { type: 'attachment.opened', attachment: 'w', role: 'watcher' } as const
    const at = { seq: running.seq + 1, at: 0 }
    const watched = evolve(running, { ...opened, answers: ['permission'], ...at })
    expect(types(watched, ask('t2', 'deny'))).toEqual(['ask.opened', 'ask.settled'])
  })
})

describe('reconnect policies', () => {
  const lose = { type: 'lose', attachment: 'p', epoch: 1, at: 10, answerGraceMs: 5 } as const
  const resume = {
    type: 'resume',
    attachment: 'p',
    answers: [],
    shown: null,
    token: null,
    at: 20,
    by: LOCAL,
  } as const
  const lapse = { type: 'lapse', attachment: 'p', graceUntil: 110 } as const
  const idle = (policy: ReconnectPolicy): Session => after(created(policy), attach('p'))
  const working = (policy: ReconnectPolicy): Session => after(idle(policy), admit())

  it.each([
    ['none', ['attachment.ended', 'session.closed']],
    ['early', ['attachment.detached']],
    ['resume', ['attachment.detached']],
    ['reopen', ['attachment.detached']],
  ] as const)('%s: a connection lost before any work', (policy, expected) => {
    expect(types(idle(policy), lose)).toEqual(expected)
  })

  it.each([
    ['none', ['attachment.ended', 'turn.cancelled', 'session.closed']],
    ['early', ['attachment.ended', 'turn.cancelled', 'session.closed']],
    ['resume', ['attachment.detached']],
    ['reopen', ['attachment.detached']],
  ] as const)('%s: a connection lost in the middle of a turn', (policy, expected) => {
    expect(types(working(policy), lose)).toEqual(expected)
  })

  it.each([
    ['early', ['attachment.ended', 'session.closed']],
    ['resume', ['attachment.ended', 'session.closed']],
    ['reopen', ['attachment.ended']],
  ] as const)('%s: the grace time of the last holder ends', (policy, expected) => {
    expect(types(idle(policy), lose, lapse)).toEqual(expected)
    expect(types(idle(policy), lose, resume, lapse)).toEqual([])
  })

  it('a grace time that ends late does not end the one after it', () => {
    const lostAnew = { ...lose, epoch: 2, at: 50 }
    expect(types(idle('resume'), lose, resume, lostAnew, lapse)).toEqual([])
    expect(types(idle('resume'), lose, resume, lostAnew, { ...lapse, graceUntil: 150 })).toEqual([
      'attachment.ended',
      'session.closed',
    ])
  })

  it('early refuses to come back once work has started', () => {
    expect(refusal(idle('early'), lose, admit(), resume)).toBe('work_started')
  })

  it('closes with its last holder, not before', () => {
    const two = after(created('none'), attach('p'), attach('q'))
    expect(types(two, lose)).toEqual(['attachment.ended'])
    expect(types(two, lose, { type: 'leave', attachment: 'q', reason: 'bye', at: 20 })).toEqual([
      'attachment.ended',
      'session.closed',
    ])
  })
})

describe('a note', () => {
  const note: Command = { type: 'note', note: { kind: 'door.fact', data: 1 }, by: LOCAL }

  it('is recorded, and changes nothing but the end of the log', () => {
    const before = after(created(), submit())
    const { session, events } = run(before, note)
    expect(events).toEqual([{ type: 'session.noted', kind: 'door.fact', data: 1, by: LOCAL }])
    expect(session).toEqual({ ...before, seq: before.seq + 1, updatedAt: 10 })
  })

  it('is refused after the end (I9)', () => {
    const close: Command = { type: 'close', reason: 'closed', by: null }
    expect(refusal(created(), close, note)).toBe('session_closed')
  })
})

describe('the end', () => {
  it('settles all that is pending in one step, and then refuses (I9)', () => {
    const session = after(created(), attach('p'), admit(), submit(), ask('t3'))
    expect(types(session, { type: 'close', reason: 'bye', by: null })).toEqual([
      'ask.settled',
      'turn.cancelled',
      'turn.cancelled',
      'attachment.ended',
      'session.closed',
    ])
    const closed = after(session, { type: 'close', reason: 'bye', by: null })
    expect(closed).toMatchObject({ running: null, queued: [], asks: [], attachments: [] })
    expect(types(closed, { type: 'close', reason: 'again', by: null })).toEqual([])
    for (const command of [
      submit(),
      admit(),
      attach('q'),
      { type: 'bind', backend: 'x' },
    ] as const) {
      expect(refusal(closed, command)).toBe('session_closed')
    }
  })

  it('after a crash the running turn is interrupted, queued ones stay, asks are withdrawn', () => {
    const session = after(created(), attach('p'), admit(), submit(), ask('t3'))
    const recovered = run(session, {
      type: 'recover',
      answerGraceMs: 5,
      at: 20,
      reason: 'node_lost',
    })
    expect(recovered.events.map(({ type }) => type)).toEqual([
      'ask.settled',
      'turn.interrupted',
      'attachment.detached',
    ])
    expect(recovered.session).toMatchObject({ running: null, asks: [], queued: [{ id: 't4' }] })
  })

  it('expires only when idle, unattached and past its time to live', () => {
    const expire = (at: number): Command => ({ type: 'expire', at })
    expect(types(created(), expire(999))).toEqual([])
    expect(types(created(), expire(1_000))).toEqual(['session.closed'])
    expect(expiresAt(after(created(), attach('p')))).toBeNull()
    expect(expiresAt(after(created(), admit()))).toBeNull()
    expect(types(after(created(), submit()), expire(9_999))).toEqual([])
  })
  it('is not kept open by clients that watch by a link', () => {
    const link = { id: 'l', scopes: ['watch'], digest: 'd', expiresAt: null, uses: 9 } as const
    const linked = after(created(), { type: 'link', link, at: 0, by: LOCAL })
    const use = (session: Session, at: number): Session =>
      evolve(session, { type: 'link.used', link: 'l', use: `u${at}`, seq: session.seq + 1, at })
    const looked = use(use(linked, 400), 800)
    expect(looked.updatedAt).toBe(800)
    expect(expiresAt(looked)).toBe(expiresAt(linked))
    const bound = { type: 'session.bound', backend: 'b', seq: looked.seq + 1, at: 900 } as const
    expect(expiresAt(evolve(looked, bound))).toBe(1_900)
  })
})
