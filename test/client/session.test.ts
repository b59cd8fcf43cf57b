/** What a session tells its handlers, what it does with requests and asks, and that all of it settles. */
import { afterEach, describe, expect, it } from 'vitest'
import type { ClientSession } from '../../src/client/index.ts'
import { Bench, outcome, settled, welcome, type Frame } from './fakes.ts'

const event = (seq: number, type: string, fields: object = {}): Frame => ({
  ...{ type, seq, at: seq },
  ...fields,
})
const started = (seq: number, turn: string): Frame =>
  event(seq, 'turn.started', { turn, input: { text: 'hi' } })
const delta = (turn: string, n: number, text = `${n} `): Frame => ({ type: 'delta', turn, n, text })
const added = (seq: number, turn: string, text: string, fields = {}): Frame =>
  event(seq, 'message.added', { turn, role: 'assistant', text, ...fields })
const opened = (seq: number, ask: string, kind = 'permission'): Frame =>
  event(seq, 'ask.opened', {
    ...{ ask, turn: 't3', kind, question: 'May I?', options: null },
    ...{ deadline: 9, onNobody: 'wait' },
  })
const answered = (seq: number, ask: string, attachment: string | null): Frame =>
  event(seq, 'ask.settled', {
    ...{ ask, turn: 't3', outcome: 'answered', answer: 'yes' },
    by: { kind: 'local', issuer: 'holdfast', id: 'default' },
    ...(attachment === null ? {} : { attachment }),
  })
const openAsk = (id: string, kind = 'permission') => ({
  ...{ id, turn: 't3', kind, question: 'May I?', options: null, deadline: 9, onNobody: 'wait' },
})

/** Records all that a session tells. */
function recorded(session: ClientSession): unknown[] {
  const told: unknown[] = []
  for (const name of ['event', 'delta', 'ask', 'asks', 'state', 'message'] as const) {
    session.on(name, (value: any) => {
      told.push([
        name,
        value.seq ?? value.n ?? value.id ?? value.name ?? value.map((a: any) => a.id),
      ])
    })
  }
  return told
}

/** The client’s last request of this type. */
function request(bench: Bench, type: string): Frame {
  const found = bench.socket.sent.findLast((frame) => frame.type === type)
  if (found === undefined) throw new Error(`the client sent no ${type}`)
  return found
}

function comeBack(bench: Bench, changes: Partial<Frame> = {}): void {
  bench.socket.drop()
  bench.next()
  bench.welcome({ epoch: 2, resume: 'r2', ...changes })
}

const unhandled: unknown[] = []
const onUnhandled = (error: unknown): void => void unhandled.push(error)
process.on('unhandledRejection', onUnhandled)

afterEach(async () => {
  await settled()
  expect(unhandled).toEqual([])
})

describe('events and deltas', () => {
  it('are told once, however often they come', () => {
    const bench = new Bench()
    const session = bench.live()
    const told = recorded(session)
    bench.socket.say(event(1, 'session.created'), started(3, 't3'), delta('t3', 1), delta('t3', 2))
    bench.socket.say(started(3, 't3'), delta('t3', 2), delta('t3', 3), event(1, 'session.created'))
    bench.socket.say(added(4, 't3', '1 2 3 '), delta('t3', 3), delta('t3', 4), added(4, 't3', ''))
    const parts = [1, 2, 3].map((n) => ['delta', n])
    expect(told).toEqual([
      ['event', 1],
      ...[['event', 3], ['message', 3], ...parts],
      ...[
        ['event', 4],
        ['message', 4],
        ['delta', 4],
      ],
    ])
    expect(session.seen).toEqual({ seq: 4, delta: 4 })
  })

  it('are counted anew with every turn', () => {
    const bench = new Bench()
    const session = bench.live()
    const told = recorded(session)
    bench.socket.say(
      started(3, 't3'),
      delta('t3', 1),
      delta('t3', 2),
      event(4, 'turn.done', { turn: 't3' }),
    )
    expect(session.seen).toEqual({ seq: 4, delta: 2 })
    bench.socket.say(started(5, 't5'))
    expect(session.seen).toEqual({ seq: 5, delta: 0 })
    bench.socket.say(delta('t5', 1))
    expect(told.at(-1)).toEqual(['delta', 1])
  })

  it('are asked for after the last that was told, when the client comes back', () => {
    const bench = new Bench()
    bench.live()
    bench.socket.say(started(3, 't3'), delta('t3', 1))
    bench.socket.drop()
    bench.next().open()
    expect(bench.socket.sent[0]?.['after']).toEqual({ seq: 3, delta: 1 })
  })

  it('are told as a conversation, too', () => {
    const bench = new Bench()
    const session = bench.live()
    const messages: unknown[] = []
    session.on('message', (message) => messages.push(message))
    bench.socket.say(event(3, 'turn.started', { turn: 't3', input: 'plain' }), started(4, 't4'))
    bench.socket.say(added(5, 't4', 'yo', { data: { a: 1 }, partial: true }), added(6, 't4', 'so'))
    expect(messages).toEqual([
      { seq: 3, turn: 't3', role: 'user', text: 'plain', at: 3 },
      { seq: 4, turn: 't4', role: 'user', text: 'hi', at: 4 },
      { seq: 5, turn: 't4', role: 'assistant', text: 'yo', at: 5, data: { a: 1 }, partial: true },
      { seq: 6, turn: 't4', role: 'assistant', text: 'so', at: 6 },
    ])
  })
})

describe('handlers', () => {
  it('are removed one by one, in the middle of a round, too', () => {
    const bench = new Bench()
    const session = bench.live()
    const told: string[] = []
    session.on('event', () => {
      told.push('first')
      removeSecond()
    })
    const removeSecond = session.on('event', () => told.push('second'))
    const third = (): void => void told.push('third')
    session.on('event', third)
    session.on('event', third)()
    bench.socket.say(event(1, 'session.created'))
    expect(told).toEqual(['first', 'third'])
  })

  it('that throw stop nothing, and are reported', async () => {
    const bench = new Bench()
    const session = bench.live()
    const reported: unknown[] = []
    const listeners = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', (error) => reported.push(error.message))
    session.on('event', () => {
      throw new Error('the page’s own')
    })
    const told = recorded(session)
    bench.socket.say(event(1, 'session.created'), event(2, 'x'))
    await settled()
    process.removeAllListeners('uncaughtException')
    for (const listener of listeners) process.on('uncaughtException', listener)
    expect(told).toEqual([
      ['event', 1],
      ['event', 2],
    ])
    expect(reported).toEqual(['the page’s own', 'the page’s own'])
  })

  it.each(['leave', 'dispose'] as const)(
    'hear nothing after %s, even if the goodbye fails',
    (way) => {
      const bench = new Bench()
      const session = bench.live()
      const told = recorded(session)
      bench.socket.failing = true
      session[way]()
      bench.socket.say(event(1, 'session.created'), delta('t1', 1))
      bench.socket.drop(4410)
      bench.clock.advance(600_000)
      expect(told).toEqual(way === 'leave' ? [['state', 'ended']] : [])
      expect(session.state).toMatchObject({ name: 'ended', code: 'left' })
      expect(bench.socket.closedBy).toBe(1000)
      expect(bench.sockets).toHaveLength(1)
      expect(bench.clock.due).toEqual([])
    },
  )

  it('hear nothing of the rest of a message in which one of them leaves', () => {
    const bench = new Bench()
    const session = bench.live()
    const told = recorded(session)
    session.on('event', () => session.dispose())
    bench.socket.say(event(1, 'session.created'), event(2, 'x'), delta('t1', 1))
    expect(told).toEqual([['event', 1]])
    expect(bench.socket.sent.at(-1)).toEqual({ type: 'bye' })
  })

  it.each(['state', 'ask', 'asks'] as const)('may leave when told %s of a welcome', (name) => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k', answers: ['permission'] })
    session.on(name, () => session.leave())
    bench.welcome({ asks: [openAsk('a1')] })
    expect(session.state).toMatchObject({ name: 'ended', code: 'left' })
    expect(bench.clock.due).toEqual([])
  })

  it('may leave before there is a connection', async () => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k' })
    session.leave()
    bench.socket.open()
    expect(bench.socket.sent).toEqual([])
    expect((await outcome(session.ready)).error.code).toBe('left')
    expect(bench.clock.due).toEqual([])
  })
})

describe('turns', () => {
  it('are awaited for the result and iterated for the parts', async () => {
    const bench = new Bench()
    const session = bench.live()
    const turn = session.turn('hi', { busy: 'reject', waitMs: 5, onDisconnect: 'cancel' })
    const asked = request(bench, 'turn')
    expect(asked).toMatchObject({ input: 'hi', busy: 'reject', waitMs: 5, onDisconnect: 'cancel' })
    bench.socket.say({ type: 'reply', id: asked['id'], turn: 't3' })
    expect(await turn.started).toBe('t3')
    const parts: string[] = []
    const reading = (async () => {
      for await (const part of turn) parts.push(part)
    })()
    bench.socket.say(started(3, 't3'), delta('t3', 1, 'one '))
    await settled()
    expect(parts).toEqual(['one '])
    bench.socket.say(added(4, 't3', 'one two'), delta('t3', 2, 'three'))
    bench.socket.say(added(5, 't3', 'three', { data: 7 }), event(6, 'turn.done', { turn: 't3' }))
    await reading
    expect(parts).toEqual(['one ', 'two', 'three'])
    const reply = { text: 'three', data: 7 }
    expect(await turn).toEqual({ id: 't3', state: 'done', reply, error: null, reason: null })
  })

  it.each([
    ['turn.failed', { error: { code: 'x', message: 'y' } }, { error: { code: 'x', message: 'y' } }],
    ['turn.cancelled', { reason: 'stop' }, { reason: 'stop' }],
    ['turn.interrupted', { reason: 'crash' }, { reason: 'crash' }],
    ['turn.expired', {}, {}],
  ])('that end with %s say so, and do not throw', async (type, fields, result) => {
    const bench = new Bench()
    const turn = bench.live().turn('hi')
    bench.socket.say(started(3, 't3'), event(4, type, { turn: 't3', ...fields }))
    bench.socket.say({ type: 'reply', id: request(bench, 'turn')['id'], turn: 't3' })
    const state = type.slice(5)
    const nothing = { reply: null, error: null, reason: null }
    expect(await turn).toEqual({ id: 't3', state, ...nothing, ...result })
    for await (const part of turn) expect(part).toBe('there is none')
  })

  it('are refused with the server’s code', async () => {
    const bench = new Bench()
    const turn = bench.live().turn('hi')
    const error = { code: 'session_busy', message: 'turn t1 runs', retry: true }
    bench.socket.say({ type: 'reply', id: request(bench, 'turn')['id'], error })
    const told = { ...error, name: 'HoldfastClientError', hint: null }
    expect((await outcome(turn)).error).toEqual(told)
    expect((await outcome(turn.started)).error).toEqual(told)
    expect((await outcome(turn.finally(() => undefined))).error).toEqual(told)
    expect(await turn.catch(() => 'caught')).toBe('caught')
    const reading = (async () => {
      for await (const part of turn) expect(part).toBe('there is none')
    })()
    expect((await outcome(reading)).error).toEqual(told)
  })

  it('are told apart, whatever order their replies come in', async () => {
    const bench = new Bench()
    const session = bench.live()
    const first = session.turn('first')
    const second = session.turn('second')
    const [one, two] = bench.socket.sent.filter(({ type }) => type === 'turn')
    bench.socket.say(started(3, 't3'), added(4, 't3', 'A'), event(5, 'turn.done', { turn: 't3' }))
    bench.socket.say(started(6, 't6'), { type: 'reply', id: two?.['id'], turn: 't6' })
    bench.socket.say(added(7, 't6', 'B'), event(8, 'turn.done', { turn: 't6' }))
    bench.socket.say({ type: 'reply', id: one?.['id'], turn: 't3' })
    expect((await first).reply?.text).toBe('A')
    expect((await second).reply?.text).toBe('B')
  })

  it('that were over before their reply was lost and found again are read from the beginning', async () => {
    const bench = new Bench()
    const session = bench.live()
    const turn = session.turn('hi')
    const { id } = request(bench, 'turn')
    bench.socket.say(
      started(3, 't3'),
      delta('t3', 1, 'a'),
      delta('t3', 2, 'b'),
      added(4, 't3', 'abc'),
    )
    bench.socket.say(event(5, 'turn.done', { turn: 't3' }))
    for (let n = 10; n < 1_000; n += 2) {
      bench.socket.say(started(n, `t${n}`), event(n + 1, 'turn.done', { turn: `t${n}` }))
    }
    comeBack(bench)
    expect(request(bench, 'turn')['id']).toBe(id)
    bench.socket.say({ type: 'reply', id, turn: 't3' })
    const parts: string[] = []
    for await (const part of turn) parts.push(part)
    expect(parts).toEqual(['a', 'b', 'c'])
    expect((await turn).state).toBe('done')
  })

  it('are read to the end by everybody who reads', async () => {
    const bench = new Bench()
    const turn = bench.live().turn('hi')
    bench.socket.say({ type: 'reply', id: request(bench, 'turn')['id'], turn: 't3' })
    const read = async (most: number): Promise<string[]> => {
      const parts: string[] = []
      for await (const part of turn) if (parts.push(part) === most) break
      return parts
    }
    const reading = [read(9), read(1)]
    bench.socket.say(started(3, 't3'), delta('t3', 1, 'a'), delta('t3', 2, 'b'))
    bench.socket.say(event(4, 'turn.done', { turn: 't3' }))
    expect(await Promise.all([...reading, read(9)])).toEqual([['a', 'b'], ['a'], ['a', 'b']])
  })
})

describe('requests', () => {
  it('made before the welcome are sent after it, in order', () => {
    const bench = new Bench()
    const session = bench.client.session({ key: 'k' })
    void session.turn('one')
    void session.cancel('t9')
    bench.socket.open()
    expect(bench.socket.sent.map(({ type }) => type)).toEqual(['hello'])
    bench.socket.say(welcome())
    expect(bench.socket.sent.map(({ type }) => type)).toEqual(['hello', 'ready', 'turn', 'cancel'])
  })

  it('without a reply are sent again under the same ids, and those with one are not', async () => {
    const bench = new Bench()
    const session = bench.live({ key: 'k' })
    void session.turn('one')
    void session.turn('two')
    void session.answer('a1', 'yes')
    const closing = session.close()
    const before = bench.socket.sent.slice(2)
    bench.socket.say({ type: 'reply', id: before[0]?.['id'], turn: 't3' })
    bench.socket.drop()
    void session.cancel('t3')
    bench.next()
    bench.welcome({ epoch: 2, resume: 'r2' })
    const again = bench.socket.sent.slice(2)
    expect(again.slice(0, 3)).toEqual(before.slice(1))
    expect(again[3]).toMatchObject({ type: 'cancel', turn: 't3' })
    const ids = [...before, ...again.slice(3)].map(({ id }) => id as string)
    expect(new Set(ids).size).toBe(5)
    expect(ids.every((id) => id.length <= 64)).toBe(true)
    bench.socket.say({ type: 'reply', id: before[3]?.['id'] })
    await closing
  })

  it('that a server which is about to stop refused are sent to the next one', async () => {
    const bench = new Bench()
    const session = bench.live()
    const turn = session.turn('patient')
    const first = request(bench, 'turn')
    const error = { code: 'draining', message: 'the server is about to stop', retry: true }
    bench.socket.say({ type: 'reply', id: first['id'], error })
    comeBack(bench)
    const again = request(bench, 'turn')
    expect(again).toEqual(first)
    bench.socket.say({ type: 'reply', id: again['id'], turn: 't3' })
    expect(await turn.started).toBe('t3')
  })

  it('are not sent again for another attachment: they might be done twice', async () => {
    const bench = new Bench()
    const session = bench.live()
    const turn = session.turn('one')
    bench.socket.drop()
    const later = session.turn('two')
    bench.next()
    bench.welcome({ attachment: 'at2', resume: 'q1' })
    expect(bench.socket.sent.filter(({ type }) => type === 'turn')).toMatchObject([
      { input: 'two' },
    ])
    expect((await outcome(turn)).error).toMatchObject({ code: 'attachment_ended', retry: false })
    bench.socket.say(started(3, 't3'), event(4, 'turn.done', { turn: 't3' }))
    bench.socket.say({ type: 'reply', id: request(bench, 'turn')['id'], turn: 't3' })
    expect((await later).state).toBe('done')
  })

  it('that are too large are refused here', async () => {
    const bench = new Bench()
    const session = bench.live()
    const before = bench.socket.sent.length
    const { error } = await outcome(session.turn('é'.repeat(524_288)))
    expect(error.code).toBe('body_too_large')
    expect(bench.socket.sent).toHaveLength(before)
    void session.turn('x'.repeat(1_000_000))
    expect(bench.socket.sent).toHaveLength(before + 1)
  })

  it('ignore a reply to nothing', () => {
    const bench = new Bench()
    const session = bench.live()
    bench.socket.say({ type: 'reply', id: 'unknown', turn: 't1' })
    expect(session.state.name).toBe('live')
  })

  const ends: readonly (readonly [
    string,
    (bench: Bench, session: ClientSession) => void,
    string,
  ])[] = [
    ['the server closes with 4408', (bench) => bench.socket.drop(4408), 'superseded'],
    ['the client leaves', (_bench, session) => session.leave(), 'left'],
    ['the client is disposed of', (_bench, session) => session.dispose(), 'left'],
    [
      'the grace time is over',
      (bench) => {
        bench.socket.drop()
        bench.clock.advance(30_000)
      },
      'connection_lost',
    ],
  ]

  it.each(ends)('all settle when %s', async (_how, end, code) => {
    const bench = new Bench()
    const session = bench.live()
    const running = session.turn('one')
    bench.socket.say({ type: 'reply', id: request(bench, 'turn')['id'], turn: 't3' })
    bench.socket.say(started(3, 't3'), delta('t3', 1, 'part'))
    const parts: string[] = []
    const reading = (async () => {
      for await (const part of running) parts.push(part)
    })()
    const waiting = session.turn('two')
    const pending = [
      ...[running, running.started.then(() => reading), waiting, waiting.started],
      ...[session.cancel('t3'), session.answer('a1', 1), session.close()],
    ].map(outcome)
    end(bench, session)
    const codes = (await Promise.all(pending)).map(({ error }) => error?.code)
    expect(codes).toEqual(codes.map(() => code))
    expect(parts).toEqual(['part'])
    const late = [session.turn('x'), session.cancel('t'), session.answer('a', 1), session.close()]
    const lateCodes = (await Promise.all(late.map(outcome))).map(({ error }) => error?.code)
    expect(lateCodes).toEqual(lateCodes.map(() => code))
  })

  it('to close or cancel have what they wanted when the session is closed', async () => {
    const bench = new Bench()
    const session = bench.live()
    const wanted = [session.close(), session.cancel('t3')]
    const unwanted = [session.turn('x'), session.answer('a1', 1)].map(outcome)
    bench.socket.say(event(3, 'session.closed', { reason: 'expired' }))
    await Promise.all(wanted)
    await session.close()
    expect(session.state).toMatchObject({ code: 'session_closed', hint: 'start_new' })
    expect(session.state).toHaveProperty('reason', 'the session is closed: expired')
    const codes = (await Promise.all(unwanted)).map(({ error }) => error.code)
    expect(codes).toEqual(['session_closed', 'session_closed'])
  })
})

describe('asks', () => {
  const options = { key: 'k', answers: ['permission'] }

  it('of the kinds that the client answers are open until they are settled', () => {
    const bench = new Bench()
    const session = bench.live(options)
    const told = recorded(session)
    bench.socket.say(opened(3, 'a3'), opened(4, 'a4', 'choice'), opened(5, 'a5'))
    expect(session.asks).toEqual([openAsk('a3'), openAsk('a5')])
    bench.socket.say(answered(6, 'a4', null), answered(7, 'a3', 'somebody'))
    expect(session.asks.map(({ id }) => id)).toEqual(['a5'])
    const asks = told.filter(([name]: any) => name === 'ask' || name === 'asks')
    expect(asks).toEqual([
      ...[
        ['ask', 'a3'],
        ['asks', ['a3']],
      ],
      ...[
        ['ask', 'a5'],
        ['asks', ['a3', 'a5']],
      ],
      ['asks', ['a5']],
    ])
  })

  it('of the welcome are open, and the history before it opens none', () => {
    const bench = new Bench()
    const session = bench.client.session(options)
    const told = recorded(session)
    bench.welcome({ session: { seq: 9 }, asks: [openAsk('a8'), openAsk('a9', 'choice')] })
    bench.socket.say(opened(3, 'a3'), answered(4, 'a3', 'x'), opened(8, 'a8'), opened(10, 'a10'))
    const asks = told.filter(([name]: any) => name === 'ask' || name === 'asks')
    expect(asks).toEqual([
      ...[
        ['ask', 'a8'],
        ['asks', ['a8']],
      ],
      ...[
        ['ask', 'a10'],
        ['asks', ['a8', 'a10']],
      ],
    ])
  })

  it('that were settled while the client was away are gone, and those that stayed are not told again', () => {
    const bench = new Bench()
    const session = bench.live(options)
    bench.socket.say(opened(3, 'a3'), opened(4, 'a4'))
    const told = recorded(session)
    comeBack(bench, { session: { seq: 7 }, asks: [openAsk('a4')] })
    bench.socket.say(answered(5, 'a3', 'x'))
    comeBack(bench, { session: { seq: 8 }, asks: [openAsk('a4')] })
    expect(told.filter(([name]: any) => name === 'ask' || name === 'asks')).toEqual([
      ['asks', ['a4']],
    ])
  })

  it('are no longer open after the end', () => {
    const bench = new Bench()
    const session = bench.live(options, { asks: [openAsk('a1')] })
    const told = recorded(session)
    bench.socket.drop(4410)
    expect(session.asks).toEqual([])
    expect(told).toEqual([
      ['asks', []],
      ['state', 'ended'],
    ])
  })

  describe('answered over a lost connection', () => {
    const error = { code: 'ask_settled', message: 'ask a3 is settled', retry: false }
    const own = answered(4, 'a3', 'at1')
    const others = answered(4, 'a3', 'at7')
    const { attachment: by, ...before } = own
    const older: Frame = { ...before, by }
    const refusal = (id: unknown): Frame => ({ type: 'reply', id, error })

    it.each([
      ['own answer, the log first', own, 'log first', undefined],
      ['own answer, the reply first', own, 'reply first', undefined],
      ['own answer, as 0.1.0 tells it', older, 'log first', undefined],
      ['another’s answer, the log first', others, 'log first', 'ask_settled'],
      ['another’s answer, the reply first', others, 'reply first', 'ask_settled'],
    ])('count if the log says so: %s', async (_what, log, order, code) => {
      const bench = new Bench()
      const session = bench.live(options)
      bench.socket.say(opened(3, 'a3'))
      const answer = outcome(session.answer('a3', 'yes'))
      comeBack(bench)
      const reply = refusal(request(bench, 'answer')['id'])
      bench.socket.say(...(order === 'log first' ? [log, reply] : [reply, log]))
      expect((await answer).error?.code).toBe(code)
    })

    it('are refused if the end comes before the log says whose answer it was', async () => {
      const bench = new Bench()
      const session = bench.live(options)
      const answer = outcome(session.answer('a3', 'yes'))
      comeBack(bench)
      bench.socket.say(refusal(request(bench, 'answer')['id']))
      session.leave()
      expect((await answer).error.code).toBe('left')
    })

    it('are refused if the log had settled the ask before they were given', async () => {
      const bench = new Bench()
      const session = bench.live(options)
      bench.socket.say(opened(3, 'a3'), own)
      const answer = outcome(session.answer('a3', 'again'))
      comeBack(bench)
      bench.socket.say(refusal(request(bench, 'answer')['id']))
      expect((await answer).error.code).toBe('ask_settled')
    })

    it('are refused at once if they were sent only once', async () => {
      const bench = new Bench()
      const session = bench.live(options)
      bench.socket.say(opened(3, 'a3'), own)
      const answer = outcome(session.answer('a3', 'again'))
      bench.socket.say(refusal(request(bench, 'answer')['id']))
      expect((await answer).error.code).toBe('ask_settled')
    })
  })
})
