/** A page that is reloaded takes its attachment up again. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { ClientSessionOptions } from '../../src/client/index.ts'
import { Bench, FakeStorage, FakeWindow, type Frame } from './fakes.ts'

afterEach(() => {
  vi.unstubAllGlobals()
})

const created: Frame = { type: 'session.created', seq: 1, at: 1 }
const resume = { attachment: 'at1', token: 'r1' }

/** A page that has seen an event and a delta, and is gone. */
function firstLoad(storage: FakeStorage, options: ClientSessionOptions = { key: 'chat' }): void {
  const bench = new Bench({ storage })
  bench.live(options)
  bench.socket.say(created, { type: 'turn.started', seq: 3, at: 3, turn: 't3', input: 'hi' })
  bench.socket.say({ type: 'delta', turn: 't3', n: 1, text: 'a' })
}

describe('a reloaded page', () => {
  it('comes back as the same attachment, and reads everything again', () => {
    const storage = new FakeStorage()
    firstLoad(storage)
    const bench = new Bench({ storage })
    const session = bench.client.session({ key: 'chat' })
    bench.socket.open()
    expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, session: 's1', auth: { resume } }])
    const told: string[] = []
    session.on('event', ({ type }) => told.push(type))
    bench.welcome({ epoch: 2, resume: 'r2' })
    bench.socket.say(created)
    expect(told).toEqual(['session.created'])
  })

  it('goes on where it was if it asks for that', () => {
    const storage = new FakeStorage()
    firstLoad(storage)
    const bench = new Bench({ storage })
    const session = bench.client.session({ key: 'chat', history: 'continue' })
    bench.socket.open()
    expect(bench.socket.sent[0]).toMatchObject({ auth: { resume }, after: { seq: 3, delta: 1 } })
    expect(session.seen).toEqual({ seq: 3, delta: 1 })
  })

  it.each(['replay', 'continue'] as const)('begins where it says itself: %s', (history) => {
    const storage = new FakeStorage()
    firstLoad(storage)
    const bench = new Bench({ storage })
    bench.client.session({ key: 'chat', history, after: { seq: 2, delta: 0 } })
    bench.socket.open()
    expect(bench.socket.sent[0]).toMatchObject({ auth: { resume }, after: { seq: 2, delta: 0 } })
  })

  it('has the newest token, also if it was gone right after the welcome', () => {
    const storage = new FakeStorage()
    const bench = new Bench({ storage })
    bench.live()
    bench.socket.drop()
    const tokens: unknown[] = []
    const socket = bench.next()
    socket.onSend = ({ type }) => {
      if (type === 'ready') tokens.push(JSON.parse(storage.getItem('holdfast:chat') ?? ''))
    }
    bench.welcome({ epoch: 2, resume: 'r2' })
    expect(tokens).toMatchObject([{ resume: { attachment: 'at1', token: 'r2' } }])
  })

  it('uses request ids of its own', () => {
    const storage = new FakeStorage()
    const ids = [1, 2].map((n) => {
      const bench = new Bench({ storage })
      bench.random = n / 7
      const session = bench.live({ key: 'chat' })
      void session.turn('hi')
      return bench.socket.sent.at(-1)?.['id'] as string
    })
    expect(ids[0]).not.toBe(ids[1])
  })

  it('finds its place by its name', () => {
    const storage = new FakeStorage()
    firstLoad(storage, { key: 'chat', name: 'left pane' })
    expect([...storage.items.keys()]).toEqual(['holdfast:left pane'])
    const bench = new Bench({ storage })
    bench.client.session({ key: 'chat' })
    bench.socket.open()
    expect(bench.socket.sent[0]).not.toHaveProperty('auth')
  })

  it('does not take up a place in another session', () => {
    const storage = new FakeStorage()
    firstLoad(storage, { id: 's1', name: 'pane' })
    const bench = new Bench({ storage })
    bench.client.session({ id: 's2', name: 'pane' })
    bench.socket.open()
    expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, session: 's2' }])
  })

  it.each(['', 'nonsense', '{}', 'null', '{"session":"s","resume":{},"seen":{}}'])(
    'begins anew if its place cannot be read: %j',
    (text) => {
      const storage = new FakeStorage()
      storage.setItem('holdfast:chat', text)
      const bench = new Bench({ storage })
      bench.client.session({ key: 'chat' })
      bench.socket.open()
      expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, key: 'chat' }])
    },
  )

  it.each([
    ['attachment_ended', 4410],
    ['attachment_unknown', 4401],
    ['unauthorized', 4401],
    ['token_reused', 4425],
    ['superseded', 4408],
  ])('whose place is gone attaches anew to the same session, once: %s', (code, number) => {
    const storage = new FakeStorage()
    firstLoad(storage)
    const bench = new Bench({ storage })
    const session = bench.client.session({ key: 'chat', link: 'l' })
    bench.socket.open()
    bench.socket.say({ type: 'refuse', code, reason: 'gone', retry: 'never' })
    bench.next().open()
    expect(bench.socket.sent).toEqual([{ type: 'hello', v: 1, session: 's1', auth: { link: 'l' } }])
    bench.socket.say({ type: 'refuse', code, reason: 'gone', retry: 'never' })
    bench.socket.drop(number)
    expect(session.state).toMatchObject({ name: 'ended', code })
    expect(storage.items.size).toBe(0)
  })

  it.each(['session_closed', 'work_started', 'in_use', 'session_unknown'])(
    'whose session does not want it back says so: %s',
    (code) => {
      const storage = new FakeStorage()
      firstLoad(storage)
      const bench = new Bench({ storage })
      const session = bench.client.session({ key: 'chat' })
      bench.socket.open()
      bench.socket.say({ type: 'refuse', code, reason: 'no', retry: 'never' })
      expect(session.state).toMatchObject({ name: 'ended', code })
      expect(storage.items.size).toBe(0)
    },
  )
})

describe('the place', () => {
  it.each([
    ['the server', (bench: Bench) => bench.socket.drop(4408)],
    ['the grace time', (bench: Bench) => (bench.socket.drop(), bench.clock.advance(30_000))],
    [
      'the log',
      (bench: Bench) => bench.socket.say({ type: 'session.closed', seq: 3, reason: 'x' }),
    ],
  ])('is forgotten when the session is ended by %s', (_what, end) => {
    const storage = new FakeStorage()
    const bench = new Bench({ storage })
    bench.live()
    expect(storage.items.size).toBe(1)
    end(bench)
    expect(storage.items.size).toBe(0)
  })

  it('is forgotten when the client leaves, and not written again', () => {
    const storage = new FakeStorage()
    const bench = new Bench({ storage })
    const session = bench.live()
    session.on('event', () => session.leave())
    bench.socket.say(created, { ...created, seq: 2 })
    expect(storage.items.size).toBe(0)
  })

  it('of another that shares the storage is left alone', () => {
    const storage = new FakeStorage()
    const first = new Bench({ storage })
    first.live()
    const second = new Bench({ storage })
    second.client.session({ key: 'chat' })
    second.welcome({ attachment: 'at2', resume: 'q1' })
    first.socket.drop(4408)
    expect(storage.items.size).toBe(1)
  })

  it('is kept in the window’s session storage, and nowhere without a window', () => {
    const storage = new FakeStorage()
    vi.stubGlobal('window', new FakeWindow())
    vi.stubGlobal('sessionStorage', storage)
    new Bench({ storage: undefined }).live()
    expect(storage.items.size).toBe(1)
    vi.unstubAllGlobals()
    vi.stubGlobal('sessionStorage', new FakeStorage())
    new Bench({ storage: undefined }).live()
    expect(storage.items.size).toBe(1)
  })

  it('is done without where storing fails', () => {
    const fail = (): never => {
      throw new Error('QuotaExceededError')
    }
    const bench = new Bench({ storage: { getItem: fail, setItem: fail, removeItem: fail } })
    const session = bench.live()
    bench.socket.say(created)
    session.leave()
    expect(session.seen.seq).toBe(1)
  })

  it('is not kept where nobody may come back', () => {
    const storage = new FakeStorage()
    const bench = new Bench({ storage })
    bench.live({ key: 'chat' }, { resume: null })
    bench.socket.say(created)
    expect(storage.items.size).toBe(0)
  })
})
