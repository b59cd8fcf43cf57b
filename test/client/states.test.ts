/** When the client is connected, when it comes back, and when it is over. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import { HoldfastClientError, connect, type ClientState } from '../../src/client/index.ts'
import { backoffMs } from '../../src/client/endings.ts'
import { Bench, FakeSocket, FakeWindow, outcome } from './fakes.ts'

afterEach(() => {
  vi.unstubAllGlobals()
})

function fakeWindow(): FakeWindow {
  const window = new FakeWindow()
  vi.stubGlobal('window', window)
  return window
}

describe('the address', () => {
  it.each([
    ['http://127.0.0.1:7420', 'ws://127.0.0.1:7420/v1/connect'],
    ['https://example.com/', 'wss://example.com/v1/connect'],
    ['ws://example.com/prefix', 'ws://example.com/prefix/v1/connect'],
    ['wss://example.com', 'wss://example.com/v1/connect'],
  ])('%s is connected to at %s', (url, expected) => {
    const bench = new Bench({ url })
    bench.client.session({ key: 'k' })
    expect(bench.socket.url).toBe(expected)
  })

  it('is the page’s own where none is given', () => {
    vi.stubGlobal('location', { origin: 'https://app.example.com' })
    const bench = new Bench({ url: '' })
    bench.client.session({ key: 'k' })
    expect(bench.socket.url).toBe('wss://app.example.com/v1/connect')
  })

  it.each(['', 'ftp://example.com', 'localhost:7420'])('%j is refused without a page', (url) => {
    expect(() => new Bench({ url })).toThrow(HoldfastClientError)
  })

  it('needs a WebSocket, the global one if none is passed', () => {
    vi.stubGlobal('WebSocket', undefined)
    expect(() => connect({ url: 'http://a' })).toThrow('pass `webSocket`')
    vi.stubGlobal('WebSocket', FakeSocket)
    expect(() => connect({ url: 'http://a' })).not.toThrow()
  })

  it('needs a key or an id', () => {
    const { client } = new Bench()
    expect(() => client.session({})).toThrow('`key`')
    expect(() => client.session({ key: 'k', id: 'i' })).toThrow('not both')
  })
})

describe('the hello', () => {
  it('says all that the options say, and nothing that they do not', () => {
    const bench = new Bench({ token: 'secret' })
    const policy = { reconnect: 'resume', exclusive: true, graceMs: 1, ttlMs: null } as const
    const options = { agent: 'a', ...policy, labels: { a: 'b' } }
    bench.client.session({ key: 'k', ...options, role: 'watcher', answers: ['x'], presence: true })
    bench.socket.open()
    bench.client.session({ id: 's', link: 'l', after: { seq: 3, delta: 1 } })
    bench.socket.open()
    const hello = { type: 'hello', v: 1 }
    expect(bench.sockets.map(({ sent }) => sent)).toEqual([
      [
        {
          ...{ ...hello, key: 'k', options, auth: { token: 'secret' } },
          ...{ role: 'watcher', answers: ['x'], presence: true },
        },
      ],
      [
        {
          ...{ ...hello, session: 's', auth: { token: 'secret', link: 'l' } },
          after: { seq: 3, delta: 1 },
        },
      ],
    ])
  })

  it('of one who comes back shows the resume token, and no link', () => {
    const bench = new Bench({ token: 'secret' })
    bench.live({ id: 's1', link: 'used up' })
    bench.socket.drop()
    bench.next().open()
    const resume = { attachment: 'at1', token: 'r1' }
    const auth = { token: 'secret', resume }
    expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, session: 's1', auth }])
  })

  it('of one who comes back names the session, so that its key does not make a new one', () => {
    const bench = new Bench()
    bench.live({ key: 'k', agent: 'a' })
    bench.socket.drop()
    bench.next().open()
    expect(bench.socket.sent[0]).not.toHaveProperty('key')
    expect(bench.socket.sent[0]).not.toHaveProperty('options')
  })
})

describe('the states', () => {
  it('go from connecting to live, reconnecting, live and ended, and everybody is told', async () => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k' })
    const states: ClientState[] = []
    session.on('state', (state) => states.push(state))
    expect(session.state).toEqual({ name: 'connecting' })
    expect(session.info).toBeNull()
    bench.welcome()
    await session.ready
    expect(session.info).toMatchObject({ id: 's1', graceMs: 30_000 })
    const lostAt = bench.clock.now()
    bench.socket.drop()
    bench.next()
    bench.welcome({ epoch: 2, resume: 'r2' })
    session.leave()
    expect(states).toEqual([
      { name: 'live' },
      { name: 'reconnecting', attempt: 1, giveUpAt: lostAt + 30_000 },
      { name: 'live' },
      { name: 'ended', code: 'left', reason: 'this client has left', hint: null },
    ])
    expect(bench.clock.due).toEqual([])
  })

  it('end as unreachable if there is no first welcome in 30 s', async () => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k' })
    const states: string[] = []
    session.on('state', ({ name }) => states.push(name))
    const startedAt = bench.clock.now()
    while (session.state.name === 'connecting') {
      bench.socket.drop()
      bench.clock.advance(bench.clock.due[0] ?? 0)
    }
    expect(session.state).toMatchObject({ name: 'ended', code: 'unreachable', hint: 'reload' })
    expect(bench.clock.now() - startedAt).toBe(30_000)
    expect(states).toEqual(['ended'])
    expect((await outcome(session.ready)).error.code).toBe('unreachable')
    expect(bench.clock.due).toEqual([])
  })

  it('end as unreachable if no socket can be made at all', () => {
    class Forbidden extends FakeSocket {
      constructor(url: string) {
        super(url)
        throw new Error('SecurityError')
      }
    }
    const bench = new Bench({ webSocket: Forbidden })
    const session = bench.client.session({ key: 'k' })
    bench.clock.advance(30_000)
    expect(session.state).toMatchObject({ name: 'ended', code: 'unreachable' })
  })

  it('end when the grace time is over, to the millisecond', async () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop()
    bench.clock.advance(29_999)
    expect(session.state.name).toBe('reconnecting')
    bench.clock.advance(1)
    expect(session.state).toMatchObject({ name: 'ended', code: 'connection_lost', hint: 'reload' })
    expect(bench.clock.due).toEqual([])
    expect(bench.socket.closedBy).not.toBeUndefined()
  })

  it('end at once where nobody may come back', () => {
    const bench = new Bench()
    const session = bench.live({ key: 'k' }, { resume: null })
    bench.socket.drop()
    expect(session.state).toMatchObject({ code: 'connection_lost', hint: 'start_new' })
    expect(bench.sockets).toHaveLength(1)
  })

  it('go on after a welcome that follows nothing', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.say({ type: 'welcome' }, { type: 'from a later version' })
    expect(session.state.name).toBe('live')
  })
})

describe('coming back', () => {
  it.each([
    [1, 0],
    [2, 250],
    [3, 500],
    [4, 1_000],
    [5, 2_000],
    [6, 5_000],
    [100, 5_000],
  ])('waits before attempt %i from 0 to %i ms', (attempt, ms) => {
    expect(backoffMs(attempt, 0)).toBe(0)
    expect(backoffMs(attempt, 0.5)).toBe(ms / 2)
    expect(backoffMs(attempt, 1)).toBe(ms)
  })

  it('waits longer with each attempt, by chance', () => {
    const bench = new Bench()
    const session = bench.live()
    const waits: number[] = []
    const attempts: unknown[] = []
    session.on('state', (state) => attempts.push('attempt' in state ? state.attempt : state.name))
    for (const random of [1, 1, 0.5, 1, 0.1, 1, 0.2]) {
      bench.random = random
      bench.socket.drop()
      const before = bench.clock.now()
      bench.next()
      waits.push(bench.clock.now() - before)
    }
    expect(waits).toEqual([0, 250, 250, 1_000, 200, 5_000, 1_000])
    expect(attempts).toEqual([1, 2, 3, 4, 5, 6, 7])
  })

  it('begins with no wait again after a connection that held', () => {
    const bench = new Bench()
    bench.live()
    const wait = (): number => {
      const before = bench.clock.now()
      bench.socket.drop()
      bench.next()
      bench.welcome({ epoch: 2 })
      return bench.clock.now() - before
    }
    expect([wait(), wait(), wait()]).toEqual([0, 250, 500])
    bench.clock.advance(5_000)
    expect([wait(), wait()]).toEqual([0, 250])
  })

  it('does not wait for ever for a welcome', () => {
    const bench = new Bench()
    bench.live()
    bench.socket.drop()
    const hung = bench.next()
    bench.clock.advance(9_999)
    expect(hung.closedBy).toBeUndefined()
    bench.clock.advance(1)
    expect(hung.closedBy).toBeNull()
    expect(bench.next()).not.toBe(hung)
  })

  it('hears nothing of a connection that it gave up', () => {
    const bench = new Bench()
    const session = bench.live()
    const [old] = bench.sockets
    bench.clock.advance(25_000)
    expect(session.state.name).toBe('reconnecting')
    old?.say({ type: 'session.created', seq: 1 })
    old?.say({ type: 'superseded' })
    old?.drop(4410)
    expect(session.state.name).toBe('reconnecting')
    expect(session.seen.seq).toBe(0)
  })

  it('stays away for as long as the server asks, and a little longer by chance', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop()
    bench.next().open()
    const refused = { type: 'refuse', code: 'draining', reason: 'soon', retry: 'after' }
    bench.random = 0.5
    bench.socket.say({ ...refused, afterMs: 4_000 })
    expect(bench.clock.due[0]).toBe(5_000)
    expect(session.state).toMatchObject({ name: 'reconnecting', attempt: 2 })
  })
})

describe('the end of a connection', () => {
  const codes = [
    [1000, 'left', null],
    [1002, 'bad_request', null],
    [1008, 'bad_request', null],
    [1009, 'bad_request', null],
    [4400, 'bad_request', null],
    [4401, 'unauthorized', null],
    [4403, 'forbidden', null],
    [4404, 'session_unknown', 'start_new'],
    [4408, 'superseded', 'take_over'],
    [4409, 'in_use', 'take_over'],
    [4410, 'session_closed', 'start_new'],
    [4423, 'work_started', 'start_new'],
    [4425, 'token_reused', 'reload'],
    [4426, 'version_unsupported', 'reload'],
    [4499, 'bad_request', null],
  ] as const

  it.each(codes)('with %i is final: %s', (number, code, hint) => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop(number, 'because')
    expect(session.state).toEqual({ name: 'ended', code, reason: 'because', hint })
    bench.clock.advance(600_000)
    expect(bench.sockets).toHaveLength(1)
    expect(bench.clock.due).toEqual([])
  })

  it.each(codes)('with %i is final for one who comes back, too', (number, code) => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop()
    bench.next().open()
    bench.socket.drop(number)
    expect(session.state).toMatchObject({ name: 'ended', code })
  })

  it.each([1001, 1005, 1006, 1011, 1012, 1013, 4413, 4429, 4503])(
    'with %i is followed by another attempt',
    (number) => {
      const bench = new Bench()
      const session = bench.live()
      bench.socket.drop(number)
      expect(session.state.name).toBe('reconnecting')
      bench.next()
      bench.welcome({ epoch: 2 })
      expect(session.state.name).toBe('live')
    },
  )

  it('with 4429 waits even before the first attempt', () => {
    const bench = new Bench()
    bench.random = 0
    bench.live()
    bench.socket.drop(4429)
    expect(bench.clock.due[0]).toBe(1_000)
  })

  it('has the code and the reason that the server gave before', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.say({ type: 'ending', code: 'attachment_ended', reason: 'grace_over' })
    expect(session.state.name).toBe('live')
    bench.socket.drop(4410)
    const ended = { code: 'attachment_ended', reason: 'grace_over', hint: 'start_new' }
    expect(session.state).toEqual({ name: 'ended', ...ended })
  })

  it.each(['never', 'now', 'after'] as const)(
    'by a refusal in favour of another waits for a person, whatever it says: %s',
    (retry) => {
      const bench = new Bench()
      const session = bench.client.session({ key: 'k' })
      bench.socket.open()
      bench.socket.say({ type: 'refuse', code: 'in_use', reason: 'elsewhere', retry, afterMs: 1 })
      expect(session.state).toMatchObject({ code: 'in_use', hint: 'take_over' })
      expect(bench.clock.due).toEqual([])
    },
  )

  it('by a refusal is final if it says never, and has its own hint', async () => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k' })
    bench.socket.open()
    const refusal = { code: 'agent_mismatch', reason: 'another agent', hint: 'start_new' }
    bench.socket.say({ type: 'refuse', retry: 'never', ...refusal })
    bench.socket.drop(4409)
    expect(session.state).toEqual({ name: 'ended', ...refusal })
    const { error } = await outcome(session.ready)
    const { code, hint, reason: message } = refusal
    expect(error).toEqual({ name: 'HoldfastClientError', retry: false, code, hint, message })
  })

  it('is not undone by what else the same message says', () => {
    const bench = new Bench()
    const session = bench.live()
    const refusal = { type: 'refuse', code: 'draining', reason: 'soon', retry: 'now' }
    bench.socket.say({ type: 'superseded' }, refusal, { ...refusal, type: 'welcome' })
    expect(session.state).toMatchObject({ name: 'ended', code: 'superseded' })
    expect(bench.clock.due).toEqual([])
  })

  it.each(['not JSON', '[1]', 'null', '{}', new Uint8Array(2)])(
    'comes by words of another protocol: %s',
    (data) => {
      const bench = new Bench()
      const session = bench.live()
      bench.socket.sayText(data)
      expect(session.state).toMatchObject({ name: 'ended', code: 'bad_request' })
      expect(bench.clock.due).toEqual([])
    },
  )
})

describe('taking over', () => {
  it('after being superseded attaches anew and goes on where it was', async () => {
    const bench = new Bench()
    const session = bench.live({ key: 'k' })
    bench.socket.say({ type: 'session.created', seq: 1, at: 1 })
    bench.socket.say({ type: 'superseded' })
    expect(session.state).toMatchObject({ code: 'superseded', hint: 'take_over' })
    const taken = session.takeOver()
    expect(session.state).toEqual({ name: 'connecting' })
    bench.socket.open()
    const after = { seq: 1, delta: 0 }
    expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, session: 's1', after, take: true }])
    bench.socket.say(welcome2)
    await taken
    expect(session.state.name).toBe('live')
    bench.socket.drop()
    bench.next().open()
    expect(bench.socket.sent[0]).not.toHaveProperty('take')
  })

  it('insists until it is welcomed', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop(4408)
    void session.takeOver()
    bench.socket.drop()
    bench.next().open()
    expect(bench.socket.sent[0]).toMatchObject({ take: true })
  })

  it('fails if it is refused', async () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop(4408)
    const taken = session.takeOver()
    bench.socket.drop(4403)
    expect((await outcome(taken)).error.code).toBe('forbidden')
  })

  it('does nothing where there is nothing to take over', () => {
    const bench = new Bench()
    const session = bench.live()
    void session.takeOver()
    bench.socket.drop(4410)
    void session.takeOver()
    expect(bench.sockets).toHaveLength(1)
  })

  it('is not for those who have left', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop(4409)
    session.dispose()
    void session.takeOver()
    expect(bench.sockets).toHaveLength(1)
  })

  const welcome2 = {
    ...{ type: 'welcome', v: 1, attachment: 'at2', role: 'driver', epoch: 1, resume: 'q1' },
    ...{ after: { seq: 1, delta: 0 }, isNew: false, asks: [], pingMs: 10_000, deadMs: 25_000 },
    session: { id: 's1', seq: 4, graceMs: 30_000 },
  }
})

describe('a position that the server does not have', () => {
  it('is given up once, and everything comes again from the beginning', async () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.say({ type: 'session.created', seq: 1, at: 1 })
    const turn = session.turn('hi')
    const [, request] = bench.socket.sent.slice(1)
    bench.socket.say({ type: 'turn.started', seq: 3, turn: 't3', input: 'hi', at: 1 })
    bench.socket.say({ type: 'reply', id: request?.['id'], turn: 't3' })
    const waiting = session.turn('again')
    const names: string[] = []
    session.on('state', ({ name }) => names.push(name))
    bench.socket.drop()
    bench.next().open()
    expect(bench.socket.sent[0]).toMatchObject({ after: { seq: 3, delta: 0 } })
    bench.socket.drop(4412)
    expect((await outcome(turn)).error.code).toBe('ahead')
    bench.next().open()
    expect(bench.socket.sent[0]).not.toHaveProperty('after')
    expect(bench.socket.sent[0]).toMatchObject({ auth: { resume: { token: 'r1' } } })
    bench.welcome({ epoch: 2 })
    expect(names).toEqual(['reconnecting', 'connecting', 'live'])
    expect(bench.socket.sent.at(-1)).toMatchObject({ type: 'turn', input: 'again' })
    session.leave()
    expect((await outcome(waiting)).error.code).toBe('left')
  })

  it('is not tried again for ever', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.drop(4412)
    bench.clock.advance(30_000)
    expect(session.state).toMatchObject({ name: 'ended', code: 'unreachable' })
    expect(bench.clock.due).toEqual([])
  })

  it('is the end if it happens again', () => {
    const bench = new Bench()
    const session = bench.client.session({ id: 's', after: { seq: 9, delta: 0 } })
    bench.socket.drop(4412)
    bench.next()
    bench.socket.drop(4412)
    expect(session.state).toMatchObject({ name: 'ended', code: 'ahead', hint: 'reload' })
  })
})

describe('a quiet connection', () => {
  it('is pinged when nothing was sent for as long as the welcome says', () => {
    const bench = new Bench()
    const session = bench.live()
    const pings = (): number => bench.socket.sent.filter(({ type }) => type === 'ping').length
    bench.clock.advance(9_999)
    expect(pings()).toBe(0)
    void session.cancel('t1')
    bench.clock.advance(9_999)
    expect(pings()).toBe(0)
    bench.clock.advance(1)
    expect(pings()).toBe(1)
    bench.socket.say({ type: 'pong' })
    bench.clock.advance(10_000)
    expect(pings()).toBe(2)
  })

  it('is given up when nothing was heard for as long as the welcome says', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.clock.advance(24_999)
    bench.socket.say({ type: 'pong' })
    bench.clock.advance(24_999)
    expect(session.state.name).toBe('live')
    bench.clock.advance(1)
    expect(session.state.name).toBe('reconnecting')
  })

  it('answers a ping', () => {
    const bench = new Bench()
    bench.live()
    bench.socket.say({ type: 'ping' })
    expect(bench.socket.sent.at(-1)).toEqual({ type: 'pong' })
  })
})

describe('the network', () => {
  it('comes back, and a waiting client tries at once', () => {
    const window = fakeWindow()
    const bench = new Bench()
    const session = bench.live()
    for (let n = 0; n < 5; n += 1) {
      bench.socket.drop()
      if (n < 4) bench.next()
    }
    expect(bench.clock.due[0]).toBe(2_000)
    const before = bench.sockets.length
    window.dispatch('online')
    bench.clock.advance(0)
    expect(bench.sockets).toHaveLength(before + 1)
    bench.welcome({ epoch: 2 })
    expect(session.state.name).toBe('live')
  })

  it('comes back, and an attempt that hangs is given up for a new one', () => {
    const window = fakeWindow()
    const bench = new Bench()
    bench.live()
    bench.socket.drop()
    const hung = bench.next()
    window.dispatch('online')
    bench.clock.advance(0)
    expect(hung.closedBy).toBeNull()
    expect(bench.socket).not.toBe(hung)
  })

  it.each(['online', 'offline'])(
    'goes %s, and a live connection has to show that it is',
    (type) => {
      const window = fakeWindow()
      const bench = new Bench()
      const session = bench.live()
      window.dispatch(type)
      expect(bench.socket.sent.at(-1)).toEqual({ type: 'ping' })
      bench.socket.say({ type: 'pong' })
      bench.clock.advance(2_000)
      expect(session.state.name).toBe('live')
      window.dispatch(type)
      bench.clock.advance(2_000)
      expect(session.state.name).toBe('reconnecting')
    },
  )

  it('is no longer listened to after the end', () => {
    const window = fakeWindow()
    const bench = new Bench()
    const session = bench.live()
    expect(window.listeners).toHaveLength(2)
    bench.socket.drop(4409)
    expect(window.listeners).toEqual([])
    void session.takeOver()
    expect(window.listeners).toHaveLength(2)
    session.dispose()
    expect(window.listeners).toEqual([])
  })
})
