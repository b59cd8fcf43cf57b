/** `docs/reference/wire.md` as claims: the connect door of a real server, over real sockets. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { ReconnectPolicy, SessionEvent } from '../../src/core/index.ts'
import { serveConnect, type Attached, type ConnectServer } from '../support/connect-server.ts'
import { until } from '../support/gate.ts'
import type { Frame, WireClient } from '../support/wire-client.ts'

let server: ConnectServer
let keys = 0

beforeAll(async () => {
  // Nobody who lives is taken for silent, however busy the machine is.
  server = await serveConnect({ connectLimits: { probeMs: 60_000 } })
})

afterEach(() => server.hangUp())
afterAll(() => server.close())

describe('a hello', () => {
  it('with a key creates its session, and the next finds it', async () => {
    const key = newKey()
    const options = { agent: 'slow', labels: { team: 'a' }, graceMs: 1_000 }
    const first = await server.attach({ key, options })
    const second = await server.attach({ key })
    expect(first.welcome).toMatchObject({
      v: 1,
      role: 'driver',
      epoch: 1,
      isNew: true,
      after: { seq: 0, delta: 0 },
      asks: [],
      pingMs: 10_000,
      deadMs: 25_000,
      session: { key, agent: 'slow', labels: { team: 'a' }, graceMs: 1_000, state: 'open' },
    })
    expect(second.welcome).toMatchObject({ isNew: false, session: { id: sessionOf(first) } })
    expect(first.welcome['resume']).toMatch(/^[\w-]{43,}$/)
    expect(second.welcome['attachment']).not.toBe(first.welcome['attachment'])
    expect(second.welcome['resume']).not.toBe(first.welcome['resume'])
  })

  it('with a session attaches to it, and gets its log from the beginning or from `after`', async () => {
    const session = await server.holdfast.resolve({ key: newKey() })
    await session.turn('one')
    const { client } = await server.attach({ session: session.id })
    await client.frame('turn.done')
    const late = await server.attach({ session: session.id, after: { seq: 2, delta: 0 } })
    await late.client.frame('turn.done')
    expect(types(client)).toEqual(['session.created', 'turn.started', 'message.added', 'turn.done'])
    expect(types(late.client)).toEqual(['message.added', 'turn.done'])
  })

  it('gets attachments and links only if it asks for presence', async () => {
    const key = newKey()
    const plain = await server.attach({ key })
    const curious = await server.attach({ key, presence: true })
    await server.attach({ key })
    await curious.client.frame(nth('attachment.opened', 3))
    plain.client.send({ type: 'turn', id: '1', input: 'x' })
    await plain.client.frame('turn.done')
    expect(types(plain.client)).not.toContain('attachment.opened')
    expect(plain.client.of('turn.started')[0]).toMatchObject({ seq: 5 })
  })

  it.each([
    ['another version', { v: 2, key: 'x' }, 'version_unsupported', 4426, 'reload'],
    ['an unknown session', { session: 'nowhere' }, 'session_unknown', 4404, 'start_new'],
    ['an unknown agent', { key: 'new', options: { agent: 'no' } }, 'agent_unknown', 4400],
    ['an unknown policy', { key: 'new', options: { reconnect: 'no' } }, 'invalid_field', 4400],
    ['neither session nor key', {}, 'bad_request', 4400],
    ['both session and key', { session: 'a', key: 'b' }, 'bad_request', 4400],
    ['an unknown field', { key: 'x', token: 'secret' }, 'bad_request', 4400],
    ['a wrong field', { key: 'x', role: 'king' }, 'bad_request', 4400],
    ['more than 16 KiB', { key: 'x'.repeat(16_384) }, 'bad_request', 4400],
  ])('with %s is refused, with a code and a way on', async (_, hello, code, close, hint?) => {
    const client = server.dial(hello)
    expect(await refusal(client)).toMatchObject({ code, close, hint, retry: 'never' })
    expect(client.frames).toHaveLength(1)
  })

  it('that claims more than there is, is refused and leaves no attachment behind', async () => {
    const session = await server.holdfast.resolve({ key: newKey(), reconnect: 'none' })
    const client = server.dial({ session: session.id, after: { seq: 2, delta: 0 } })
    expect(await refusal(client)).toMatchObject({ code: 'ahead', close: 4412, hint: 'reload' })
    expect(await session.state()).toMatchObject({ attachments: [], closed: null, seq: 1 })
  })

  it('that is refused leaves no session behind that was made for it', async () => {
    const key = newKey()
    await expect(server.attach({ key, after: { seq: 7, delta: 0 } })).rejects.toThrow()
    await until(async () => (await server.holdfast.find(key)) === null)
  })

  it('to a closed session is refused with 4410', async () => {
    const session = await server.holdfast.resolve({ key: newKey() })
    await session.close('enough')
    const answer = await refusal(server.dial({ session: session.id }))
    expect(answer).toMatchObject({ code: 'session_closed', close: 4410, hint: 'start_new' })
    expect(answer.reason).toContain('enough')
  })

  it('that does not come in time is refused, and may be tried again', async () => {
    const hasty = await serveConnect({ connectLimits: { helloMs: 20, watchMs: 5 } })
    const client = hasty.connect()
    const { code, close, retry } = await refusal(client)
    expect({ code, close, retry }).toEqual({ code: 'too_slow', close: 4413, retry: 'after' })
    await hasty.close()
  })

  it('is said once', async () => {
    const { client } = await server.attach({ key: newKey() })
    client.send({ type: 'hello', v: 1, key: 'again' })
    expect(await ending(client)).toEqual({ code: 'bad_request', close: 4400 })
  })
})

describe('turns', () => {
  it('reach everybody who is attached, and the reply only the one who asked', async () => {
    const key = newKey()
    const [one, other] = [await server.attach({ key }), await server.attach({ key })]
    one.client.send({ type: 'turn', id: 'r1', input: 'hello' })
    const reply = await one.client.reply('r1')
    await Promise.all([one, other].map(({ client }) => client.frame('turn.done')))
    const said = { type: 'message.added', text: 'hello', turn: reply['turn'] }
    expect(one.client.of('message.added')).toEqual([expect.objectContaining(said)])
    expect(other.client.of('message.added')).toEqual([expect.objectContaining(said)])
    expect(other.client.of('reply')).toEqual([])
    expect(one.client.of('reply')).toHaveLength(1)
  })

  it('answer in deltas that count within the turn, and a message that has all of them', async () => {
    const { client } = await puppeteer()
    for (const input of ['first', 'second']) {
      client.send({ type: 'turn', id: input, input })
      const strings = await server.puppet.turn(input)
      for (const text of ['a', 'b', 'c']) strings.say(text)
      await client.frame(
        (frame) =>
          frame['n'] === 3 &&
          frame['turn'] === client.frames.findLast(({ type }) => type === 'turn.started')?.['turn'],
      )
      strings.end()
      const { turn } = await client.reply(input)
      await client.frame((frame) => frame.type === 'turn.done' && frame['turn'] === turn)
      const deltas = client.of('delta').filter((frame) => frame['turn'] === turn)
      expect(deltas.map(({ n, text }) => [n, text])).toEqual([
        [1, 'a'],
        [2, 'b'],
        [3, 'c'],
      ])
      expect(client.of('message.added').at(-1)).toMatchObject({ turn, text: 'abc' })
    }
  })

  it('of many clients run one at a time, and each is answered with its own', async () => {
    const key = newKey()
    const clients = await Promise.all([1, 2, 3].map(() => server.attach({ key })))
    clients.forEach(({ client }, index) =>
      client.send({ type: 'turn', id: 'same', input: `input ${index}` }),
    )
    const replies = await Promise.all(clients.map(({ client }) => client.reply('same')))
    const { client } = clients[0] as Attached
    await client.frame(nth('turn.done', 3))
    const inputs = new Map(client.of('turn.started').map(({ turn, input }) => [turn, input]))
    expect(replies.map(({ turn }) => inputs.get(turn))).toEqual(['input 0', 'input 1', 'input 2'])
    expect(types(client).filter((type) => /^turn.(started|done)/.test(type))).toEqual(
      [1, 2, 3].flatMap(() => ['turn.started', 'turn.done']),
    )
  })

  it('wait no longer than they say, and then are refused as if nothing had happened', async () => {
    const { client } = await puppeteer()
    client.send({ type: 'turn', id: '1', input: 'long' })
    await client.reply('1')
    client.send({ type: 'turn', id: '2', input: 'late', waitMs: 1 })
    client.send({ type: 'turn', id: '3', input: 'now', busy: 'reject' })
    for (const id of ['2', '3']) {
      expect(await client.reply(id)).toMatchObject({ error: { code: 'session_busy', retry: true } })
    }
    const strings = await server.puppet.turn('long')
    strings.end('done')
    await client.frame('turn.done')
    expect(client.of('turn.started')).toHaveLength(1)
  })

  it('are cancelled on request, and the reply comes when they are over', async () => {
    const { client } = await puppeteer()
    client.send({ type: 'turn', id: '1', input: 'to be cancelled' })
    const { turn } = await client.reply('1')
    client.send({ type: 'cancel', id: '2', turn })
    expect(await client.reply('2')).toEqual({ type: 'reply', id: '2', turn })
    await client.frame('turn.cancelled')
    client.send({ type: 'cancel', id: '3', turn: 't999' })
    expect(await client.reply('3')).toMatchObject({ error: { code: 'turn_unknown' } })
  })

  it.each([
    ['an unknown busy policy', { busy: 'fight' }],
    ['a wait that is too long', { waitMs: 1e12 }],
  ])('with %s are refused, and the connection goes on', async (_, options) => {
    const { client } = await server.attach({ key: newKey() })
    client.send({ type: 'turn', id: '1', input: 'x', ...options })
    expect(await client.reply('1')).toMatchObject({
      error: { code: 'invalid_field', retry: false },
    })
    client.send({ type: 'turn', id: '2', input: 'x' })
    expect(await client.reply('2')).toHaveProperty('turn')
  })

  it('with an id that stands for another input are refused', async () => {
    const { client } = await server.attach({ key: newKey() })
    client.send({ type: 'turn', id: '1', input: 'x' })
    await client.frame('turn.done')
    client.send({ type: 'turn', id: '1', input: 'y' })
    const fails = (frame: Frame): boolean => frame['error'] !== undefined
    expect(await client.frame(fails)).toMatchObject({ error: { code: 'idempotency_mismatch' } })
  })

  it('of a watcher are refused, and so is its closing of the session', async () => {
    const { client, welcome } = await server.attach({ key: newKey(), role: 'watcher' })
    expect(welcome['role']).toBe('watcher')
    client.send([
      { type: 'turn', id: '1', input: 'x' },
      { type: 'close', id: '2' },
    ])
    for (const id of ['1', '2']) {
      expect(await client.reply(id)).toMatchObject({ error: { code: 'forbidden' } })
    }
  })

  it('go on without the client that asked for them', async () => {
    const { client, welcome } = await puppeteer()
    client.send({ type: 'turn', id: '1', input: 'goes on' })
    const { turn } = await client.reply('1')
    await client.cut()
    const strings = await server.puppet.turn('goes on')
    strings.end('all the same')
    const session = server.holdfast.session(welcome['session'].id)
    expect(await session.finished(turn)).toMatchObject({ state: 'done' })
  })

  it('are cancelled with the client that wanted it so, once it cannot come back', async () => {
    const { client, welcome } = await puppeteer({ graceMs: 0 })
    client.send({ type: 'turn', id: '1', input: 'not without me', onDisconnect: 'cancel' })
    const { turn } = await client.reply('1')
    await client.cut()
    const session = server.holdfast.session(welcome['session'].id)
    expect(await session.finished(turn)).toMatchObject({ state: 'cancelled' })
  })
})

describe('coming back', () => {
  it('in the middle of a turn misses nothing and repeats nothing, deltas included', async () => {
    const first = await puppeteer()
    first.client.send({ type: 'turn', id: '1', input: 'streamed' })
    const strings = await server.puppet.turn('streamed')
    for (const text of ['a', 'b']) strings.say(text)
    await first.client.frame((frame) => frame['n'] === 2)
    await lost(first)
    strings.say('c')
    const second = await comeBack(first)
    await second.client.frame((frame) => frame['n'] === 3)
    strings.say('d')
    await second.client.frame((frame) => frame['n'] === 4)
    await lost(second)
    strings.say('e')
    strings.end()
    const third = await comeBack(second)
    await third.client.frame('turn.done')
    expect(second.welcome['after']).toEqual(first.client.seen)
    const all = [first, second, third].flatMap(({ client }) => client.frames)
    const deltas = all.filter(({ type }) => type === 'delta').map(({ n }) => n)
    // The message came meanwhile and has all of it: what it replaced need not come too.
    expect(deltas.slice(0, 4)).toEqual([1, 2, 3, 4])
    expect(deltas.slice(4)).toEqual(deltas.length > 4 ? [5] : [])
    const seqs = all.flatMap(({ seq }) => (typeof seq === 'number' ? [seq] : []))
    expect(seqs).toEqual([...new Set(seqs)].sort((a, b) => a - b))
    expect(third.client.of('message.added')).toEqual([expect.objectContaining({ text: 'abcde' })])
  })

  it('gives a new token and epoch; the old token is good until the new one is confirmed', async () => {
    const first = await server.attach({ key: newKey(), presence: true })
    await lost(first)
    const unconfirmed = await comeBack(first)
    await lost(unconfirmed)
    // The welcome could have been lost on its way, so the first token must do once more.
    const again = await comeBack(first, { presence: true })
    expect([unconfirmed, again].map(({ welcome }) => welcome['epoch'])).toEqual([2, 3])
    expect([unconfirmed, again].map(({ welcome }) => welcome['attachment'])).toEqual([
      first.welcome['attachment'],
      first.welcome['attachment'],
    ])
    again.client.send({ type: 'ready', epoch: 3 })
    await again.client.frame('attachment.confirmed')
    expect(await refusal(server.dial(helloOf(first)))).toMatchObject({
      code: 'token_reused',
      close: 4425,
      hint: 'reload',
      retry: 'never',
    })
    again.client.send({ type: 'turn', id: '1', input: 'undisturbed' })
    await again.client.frame('turn.done')
    expect(again.client.isClosed).toBe(false)
  })

  it('ignores a confirmation of another epoch', async () => {
    const first = await server.attach({ key: newKey() })
    await lost(first)
    const second = await comeBack(first)
    second.client.send([
      { type: 'ready', epoch: 1 },
      { type: 'turn', id: '1', input: 'x' },
    ])
    await second.client.frame('turn.done')
    await lost(second)
    expect((await comeBack(first)).welcome['epoch']).toBe(3)
  })

  it.each([
    ['a guessed token', { token: 'x'.repeat(43) }],
    ['an unknown attachment', { attachment: 'nobody' }],
  ])('with %s is refused like any stranger', async (_, wrong) => {
    const first = await server.attach({ key: newKey() })
    await lost(first)
    const hello = helloOf(first)
    const resume = { ...hello.auth.resume, ...wrong }
    const answer = await refusal(server.dial({ ...hello, auth: { resume } }))
    expect(answer).toMatchObject({ code: 'attachment_unknown', close: 4401 })
  })

  it('with a token of another session is refused', async () => {
    const [one, other] = [
      await server.attach({ key: newKey() }),
      await server.attach({ key: newKey() }),
    ]
    const hello = { ...helloOf(one), session: sessionOf(other) }
    expect(await refusal(server.dial(hello))).toMatchObject({ close: 4401 })
  })

  it('finds the turn of a request that is sent again, and does not run it twice', async () => {
    const first = await server.attach({ key: newKey(), options: { agent: 'puppet' } })
    const request = { type: 'turn', id: 'once', input: 'only once' }
    first.client.send(request)
    const { turn } = await first.client.reply('once')
    await lost(first)
    const running = await comeBack(first)
    running.client.send(request)
    expect(await running.client.reply('once')).toMatchObject({ turn })
    const strings = await server.puppet.turn('only once')
    strings.end('x')
    await running.client.frame('turn.done')
    await lost(running)
    const over = await comeBack(running)
    over.client.send(request)
    expect(await over.client.reply('once')).toMatchObject({ turn })
    expect(await logOf(over, 'turn.started')).toHaveLength(1)
  })

  it('while the old connection is silent takes its place', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 20 } })
    const hello = { key: newKey(), options: { exclusive: true } }
    const first = await quick.attach(hello, { silent: true })
    const second = await quick.attach(helloOf(first))
    expect(second.welcome).toMatchObject({ attachment: first.welcome['attachment'], epoch: 2 })
    const last = await first.client.closed
    // Told so if it can still hear it.
    expect(last.code).toBe(4408)
    expect(first.client.of('superseded')).toHaveLength(1)
    second.client.send({ type: 'turn', id: '1', input: 'mine now' })
    await second.client.frame('turn.done')
    await quick.close()
  })

  it('with a copied token gets an attachment of its own while the original is alive', async () => {
    const original = await server.attach({ key: newKey() })
    const clone = await server.attach(helloOf(original))
    expect(clone.welcome['attachment']).not.toBe(original.welcome['attachment'])
    expect(clone.welcome['epoch']).toBe(1)
    for (const { client } of [original, clone]) client.send({ type: 'turn', id: '1', input: 'x' })
    const turns = await Promise.all([original, clone].map(({ client }) => client.reply('1')))
    expect(new Set(turns.map(({ turn }) => turn)).size).toBe(2)
  })

  it('at the same time as a copy leaves one in the old place, and neither is put out', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 2_000 } })
    const original = await quick.attach({ key: newKey() }, { silent: true })
    const both = await Promise.all([1, 2].map(() => quick.attach(helloOf(original))))
    const places = both.map(({ welcome }) => welcome['attachment'])
    expect(places.filter((place) => place === original.welcome['attachment'])).toHaveLength(1)
    for (const { client } of both) {
      client.send({ type: 'turn', id: '1', input: 'x' })
      await client.reply('1')
      expect(client.of('superseded')).toEqual([])
    }
    await quick.close()
  })

  it('just before the old connection closes takes its place, however they overlap', async () => {
    const key = newKey()
    let attached = await server.attach({ key, options: { exclusive: true } }, { silent: true })
    const { attachment } = attached.welcome
    for (let round = 2; round < 12; round += 1) {
      const old = attached.client
      const coming = server.dial(helloOf(attached), { silent: true })
      // Asked for a sign of life, the old page is closed instead: it is being reloaded.
      const pinged = old.frame('ping').then(() => old.socket.close(1001))
      const welcome = await coming.frame('welcome')
      await pinged
      expect(welcome).toMatchObject({ attachment, epoch: round })
      attached = { client: coming, welcome }
    }
  })
})

describe('an exclusive session', () => {
  const exclusive = (key: string) => ({ key, options: { exclusive: true } })

  it('refuses a second driver while the first is alive, and lets others watch', async () => {
    const key = newKey()
    const first = await server.attach(exclusive(key))
    expect(await refusal(server.dial(exclusive(key)))).toMatchObject({
      code: 'in_use',
      close: 4409,
      hint: 'take_over',
      retry: 'never',
    })
    const clone = server.dial(helloOf(first))
    expect(await refusal(clone)).toMatchObject({ code: 'in_use', close: 4409 })
    const watcher = await server.attach({ key, role: 'watcher' })
    first.client.send({ type: 'turn', id: '1', input: 'x' })
    await watcher.client.frame('turn.done')
    expect(first.client.isClosed).toBe(false)
  })

  it('lets a copy of a watcher watch too', async () => {
    const key = newKey()
    await server.attach(exclusive(key))
    const watcher = await server.attach({ key, role: 'watcher' })
    const copy = await server.attach(helloOf(watcher))
    expect(copy.welcome).toMatchObject({ role: 'watcher', epoch: 1 })
    expect(copy.welcome['attachment']).not.toBe(watcher.welcome['attachment'])
    expect(watcher.client.isClosed).toBe(false)
  })

  it('is given to a newcomer if its driver is silent', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 20 } })
    const key = newKey()
    const first = await quick.attach(exclusive(key), { silent: true })
    const second = await quick.attach(exclusive(key))
    expect(second.welcome['attachment']).not.toBe(first.welcome['attachment'])
    await first.client.closed
    const gone = await refusal(quick.dial(helloOf(first)))
    expect(gone).toMatchObject({ code: 'superseded', close: 4408, hint: 'take_over' })
    await quick.close()
  })

  it('is not given to a newcomer that is gone before it is clear', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 2_000 } })
    const key = newKey()
    const first = await quick.attach(exclusive(key), { silent: true })
    const gone = quick.dial(exclusive(key))
    await first.client.frame('ping')
    await gone.cut()
    const second = await quick.attach(exclusive(key))
    const { ended } = await quick.holdfast.session(sessionOf(second)).state()
    expect(ended.map(({ id }) => id)).toEqual([first.welcome['attachment']])
    await quick.close()
  })

  it('waits a moment for a driver without a connection, which may be on its way out', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 3_000 } })
    const session = await quick.holdfast.resolve(exclusive(newKey()).options)
    const driver = await session.attach()
    const newcomer = quick.dial({ session: session.id })
    // It is being judged when it has answered a ping that came after its hello.
    for (let round = 1; round <= 3; round += 1) {
      newcomer.send({ type: 'ping' })
      await newcomer.frame(nth('pong', round))
    }
    await driver.lose()
    expect(await newcomer.frame('welcome')).toMatchObject({ role: 'driver' })
    await quick.close()
  })

  it.each([
    ['a newcomer', () => ({})],
    ['a copy of the driver', (first: Attached) => helloOf(first)],
  ])('is taken over by %s that a person told to', async (_, more) => {
    const key = newKey()
    const first = await server.attach(exclusive(key))
    const hello = more(first)
    const second = await server.attach({ ...('session' in hello ? hello : { key }), take: true })
    expect(await first.client.closed).toMatchObject({ code: 4408 })
    expect(first.client.of('superseded')).toHaveLength(1)
    second.client.send({ type: 'turn', id: '1', input: 'mine' })
    await second.client.frame('turn.done')
    const { attachments } = await server.holdfast.session(sessionOf(second)).state()
    expect(attachments.filter(({ role }) => role === 'driver')).toHaveLength(1)
  })
})

describe('the policy', () => {
  const loseOne = async (reconnect: ReconnectPolicy, graceMs: number, work = false) => {
    const options = { reconnect, graceMs }
    const first = await server.attach({ key: newKey(), options })
    if (work) {
      first.client.send({ type: 'turn', id: '1', input: 'x' })
      await first.client.frame('turn.done')
    }
    await first.client.cut()
    return first
  }
  const LONG = 60_000
  const SHORT = 5

  it('none lets nobody back, and closes the session with its last holder', async () => {
    const first = await loseOne('none', LONG)
    await logged(first, 'session.closed')
    expect(await logOf(first, 'attachment.ended')).toMatchObject([{ reason: 'connection_lost' }])
    const answer = await refusal(server.dial({ session: sessionOf(first) }))
    expect(answer).toMatchObject({ code: 'session_closed', close: 4410 })
  })

  it('none leaves the session to those who are still there', async () => {
    const key = newKey()
    const first = await server.attach({ key, options: { reconnect: 'none' } })
    const second = await server.attach({ key, presence: true })
    await first.client.cut()
    await second.client.frame('attachment.ended')
    second.client.send({ type: 'turn', id: '1', input: 'still here' })
    await second.client.frame('turn.done')
  })

  it('early lets a client back before the first turn', async () => {
    const first = await loseOne('early', LONG)
    await logged(first, 'attachment.detached')
    expect((await comeBack(first)).welcome).toMatchObject({ epoch: 2 })
  })

  it('early lets nobody back once work has started', async () => {
    const first = await loseOne('early', LONG, true)
    await logged(first, 'session.closed')
    expect(await refusal(server.dial(helloOf(first)))).toMatchObject({ close: 4410 })
  })

  it('early refuses with 4423 whom work has overtaken', async () => {
    const first = await loseOne('early', LONG)
    await logged(first, 'attachment.detached')
    await server.holdfast.session(sessionOf(first)).turn('x')
    const answer = await refusal(server.dial(helloOf(first)))
    expect(answer).toMatchObject({ code: 'work_started', close: 4423, hint: 'start_new' })
  })

  it('early lets nobody take the place of a silent connection once work has started', async () => {
    const quick = await serveConnect({ connectLimits: { probeMs: 20 } })
    const options = { reconnect: 'early' }
    const first = await quick.attach({ key: newKey(), options }, { silent: true })
    first.client.send({ type: 'turn', id: '1', input: 'x' })
    await first.client.frame('turn.done')
    expect(await refusal(quick.dial(helloOf(first)))).toMatchObject({ close: 4410 })
    await quick.close()
  })

  it('resume lets a client back in the middle of the work', async () => {
    const first = await loseOne('resume', LONG, true)
    await logged(first, 'attachment.detached')
    expect((await comeBack(first)).welcome).toMatchObject({ epoch: 2 })
  })

  it('resume closes the session when the grace time of its last holder is over', async () => {
    const first = await loseOne('resume', SHORT, true)
    await logged(first, 'session.closed')
    expect(await logOf(first, 'attachment.ended')).toMatchObject([{ reason: 'grace_over' }])
    expect(await refusal(server.dial(helloOf(first)))).toMatchObject({ close: 4410 })
  })

  it('reopen ends the attachment with its grace time, and the session lives on', async () => {
    const first = await loseOne('reopen', SHORT, true)
    await logged(first, 'attachment.ended')
    const answer = await refusal(server.dial(helloOf(first)))
    expect(answer).toMatchObject({ code: 'attachment_ended', close: 4410, hint: 'start_new' })
    expect(answer.reason).toContain('grace_over')
    const second = await server.attach({ session: sessionOf(first) })
    expect(second.welcome['session']).toMatchObject({ state: 'open', turns: 1 })
  })
})

describe('an ask', () => {
  const asking = async (answers: string[] = ['permission']) => {
    const first = await server.attach({ key: newKey(), options: { agent: 'ask' }, answers })
    first.client.send({ type: 'turn', id: '1', input: 'please' })
    const { ask } = await first.client.frame('ask.opened')
    return { first, ask: ask as string }
  }

  it('is in the welcome of those who answer its kind, and answered once', async () => {
    const { first, ask } = await asking()
    const session = sessionOf(first)
    const eager = await server.attach({ session, answers: ['permission'] })
    const deaf = await server.attach({ session, answers: ['colour'] })
    expect(eager.welcome['asks']).toMatchObject([{ id: ask, kind: 'permission' }])
    expect(deaf.welcome['asks']).toEqual([])
    eager.client.send({ type: 'answer', id: 'a', ask, answer: 'allow' })
    expect(await eager.client.reply('a')).toEqual({ type: 'reply', id: 'a' })
    first.client.send({ type: 'answer', id: 'b', ask, answer: 'deny' })
    expect(await first.client.reply('b')).toMatchObject({ error: { code: 'ask_settled' } })
    const attachment = eager.welcome['attachment'] as string
    const by = { kind: 'local', issuer: 'holdfast', id: 'default' }
    const settled = { ask, outcome: 'answered', answer: 'allow', by, attachment }
    expect(await deaf.client.frame('ask.settled')).toMatchObject(settled)
    await first.client.frame('turn.done')
    expect(first.client.of('message.added')).toMatchObject([{ text: 'please' }])
  })

  it('survives a reconnect and is answered after it', async () => {
    const { first, ask } = await asking()
    await lost(first)
    const second = await comeBack(first)
    expect(second.welcome['asks']).toMatchObject([{ id: ask }])
    second.client.send({ type: 'answer', id: 'a', ask, answer: 'allow' })
    await second.client.frame('turn.done')
  })

  it('takes only one of its options, and no answer to another ask', async () => {
    const { first, ask } = await asking()
    first.client.send([
      { type: 'answer', id: 'a', ask, answer: 'maybe' },
      { type: 'answer', id: 'b', ask: 'a999', answer: 'allow' },
    ])
    expect(await first.client.reply('a')).toMatchObject({ error: { code: 'invalid_answer' } })
    expect(await first.client.reply('b')).toMatchObject({ error: { code: 'ask_unknown' } })
  })

  it('is withdrawn when the session is closed', async () => {
    const { first } = await asking()
    const watcher = await server.attach({ session: sessionOf(first), role: 'watcher' })
    await server.holdfast.session(sessionOf(first)).close()
    await watcher.client.closed
    expect(watcher.client.of('ask.settled')).toMatchObject([{ outcome: 'withdrawn' }])
  })
})

describe('the end', () => {
  it('by bye before the welcome leaves no attachment behind', async () => {
    const other = await server.attach({ key: newKey(), presence: true })
    const hasty = server.dial({ session: sessionOf(other) })
    hasty.send({ type: 'bye' })
    expect(await hasty.closed).toMatchObject({ code: 1000 })
    const later = await server.attach({ session: sessionOf(other) })
    const session = server.holdfast.session(sessionOf(other))
    const places = async () => (await session.state()).attachments.map(({ id }) => id)
    const here = [other, later].map(({ welcome }) => welcome.attachment)
    await expect.poll(places).toEqual(here)
    expect(types(other.client)).not.toContain('attachment.detached')
  })

  it('by bye ends the attachment at once', async () => {
    const first = await server.attach({ key: newKey() })
    const other = await server.attach({ session: sessionOf(first), presence: true })
    first.client.send([{ type: 'bye' }, { type: 'turn', id: '1', input: 'after the end' }])
    expect(await first.client.closed).toMatchObject({ code: 1000 })
    expect(await other.client.frame('attachment.ended')).toMatchObject({ reason: 'left' })
    const answer = await refusal(server.dial(helloOf(first)))
    expect(answer).toMatchObject({ code: 'attachment_ended', close: 4410 })
    expect(await logOf(other, 'turn.started')).toEqual([])
  })

  it('by a client closes the session for everybody, and its request is answered', async () => {
    const first = await server.attach({ key: newKey() })
    const other = await server.attach({ session: sessionOf(first) })
    first.client.send({ type: 'close', id: 'c' })
    expect(await first.client.reply('c')).toEqual({ type: 'reply', id: 'c' })
    for (const { client } of [first, other]) {
      expect(await ending(client)).toEqual({ code: 'session_closed', close: 4410 })
      expect(client.of('session.closed')).toMatchObject([{ reason: 'closed_by_client' }])
    }
  })

  it('of a session that is closed elsewhere comes at once, everywhere, after the last event', async () => {
    const session = await server.holdfast.resolve({ key: newKey() })
    const all = await Promise.all([1, 2, 3].map(() => server.attach({ session: session.id })))
    await session.close('elsewhere')
    for (const { client } of all) {
      expect(await ending(client)).toEqual({ code: 'session_closed', close: 4410 })
      const [last] = client.frames.slice(-2)
      expect(last).toMatchObject({ type: 'session.closed', reason: 'elsewhere' })
    }
  })

  it('of the server is told with 4503, and who comes meanwhile is told to wait', async () => {
    const stopping = await serveConnect()
    const { client } = await stopping.attach({ key: 'x', options: { agent: 'puppet' } })
    client.send({ type: 'turn', id: '1', input: 'last' })
    const strings = await stopping.puppet.turn('last')
    const closing = stopping.server.close({ drainMs: 60_000, closeHoldfast: true })
    expect(await refusal(stopping.dial({ key: 'x' }))).toMatchObject({
      code: 'draining',
      close: 4503,
      retry: 'after',
      hint: 'wait',
    })
    strings.end('done')
    expect(await ending(client)).toEqual({ code: 'draining', close: 4503 })
    expect(client.of('turn.done')).toHaveLength(1)
    await closing
  })

  it('comes to a connection that has been silent for too long, and to none that answers', async () => {
    const strict = await serveConnect({
      connectLimits: { pingMs: 10, deadMs: 3_000, watchMs: 5 },
    })
    const silent = await strict.attach({ key: 'x' }, { silent: true })
    const lively = await strict.attach({ key: 'x', presence: true })
    expect(await silent.client.closed).toMatchObject({ code: 1006 })
    await lively.client.frame('attachment.detached')
    expect(silent.client.of('ping').length).toBeGreaterThan(0)
    expect(lively.client.isClosed).toBe(false)
    await strict.close()
  })

  it('does not come to a client that pings by itself', async () => {
    const { client } = await server.attach({ key: newKey() })
    client.send({ type: 'ping' })
    await client.frame('pong')
  })
})

describe('a link', () => {
  const linked = async (scopes: ('watch' | 'talk' | 'answer')[], more: object = {}) => {
    const session = await server.holdfast.resolve({ key: newKey() })
    const link = await session.createLink({ scopes, ...more })
    return { session, link, hello: { session: session.id, auth: { link: link.token } } }
  }

  it('to watch lets its holder look on and do nothing else', async () => {
    const { hello, session } = await linked(['watch'])
    const { client } = await server.attach({ ...hello, role: 'watcher' })
    client.send([
      { type: 'turn', id: '1', input: 'x' },
      { type: 'close', id: '2' },
      { type: 'answer', id: '3', ask: 'a1', answer: 1 },
      { type: 'cancel', id: '4', turn: 't1' },
    ])
    for (const id of ['1', '2', '3', '4']) {
      expect(await client.reply(id)).toMatchObject({ error: { code: 'forbidden' } })
    }
    await session.turn('x')
    await client.frame('turn.done')
    for (const more of [{}, { role: 'watcher', answers: ['permission'] }]) {
      const answer = await refusal(server.dial({ ...hello, ...more }))
      expect(answer).toMatchObject({ code: 'forbidden', close: 4403 })
    }
  })

  it('to talk lets its holder take turns, but not close the session', async () => {
    const { hello } = await linked(['talk'])
    const { client } = await server.attach(hello)
    client.send([
      { type: 'turn', id: '1', input: 'x' },
      { type: 'close', id: '2' },
    ])
    expect(await client.reply('1')).toHaveProperty('turn')
    expect(await client.reply('2')).toMatchObject({ error: { code: 'forbidden' } })
  })

  it('tells its holder nothing of who else is there, even if asked', async () => {
    const { hello, session } = await linked(['talk'])
    const other = await server.attach({ session: session.id, presence: true })
    expect(other.welcome['session'].attachments).toHaveLength(1)
    const { client, welcome } = await server.attach({ ...hello, presence: true })
    expect(welcome['session'].attachments).toEqual([])
    client.send({ type: 'turn', id: '1', input: 'x' })
    await client.frame('turn.done')
    expect(types(client)).toEqual(['session.created', 'turn.started', 'message.added', 'turn.done'])
  })

  it('is refused once it is expired, used up or revoked', async () => {
    const expired = await linked(['watch'], { expiresAt: Date.now() - 1 })
    const once = await linked(['talk'], { uses: 1 })
    const revoked = await linked(['talk'])
    await revoked.session.revokeLink(revoked.link.id)
    const first = await server.attach(once.hello)
    for (const { hello } of [expired, once, revoked]) {
      const answer = await refusal(server.dial({ ...hello, role: 'watcher' }))
      expect(answer).toMatchObject({ code: 'unauthorized', close: 4401, retry: 'never' })
    }
    // Who came in by one that is used up stays, and may come back.
    await lost(first)
    await comeBack(first)
  })

  it('takes along who came in by it, and nobody else, when it is revoked or expires', async () => {
    for (const isRevoked of [true, false]) {
      const options = isRevoked ? {} : { expiresAt: Date.now() + 1_500 }
      const { session, link, hello } = await linked(['talk'], options)
      const other = await server.attach({ session: session.id })
      const guest = await server.attach(hello)
      const away = await server.attach(hello)
      await lost(away)
      if (isRevoked) await session.revokeLink(link.id)
      expect(await guest.client.closed).toEqual({ code: 4410, reason: 'attachment_ended' })
      expect(guest.client.of('ending')).toHaveLength(1)
      for (const { welcome } of [guest, away]) {
        const resume = { attachment: welcome['attachment'], token: welcome['resume'] }
        const answer = await refusal(server.dial({ session: session.id, auth: { resume } }))
        expect(answer).toMatchObject({ code: 'attachment_ended', close: 4410, retry: 'never' })
      }
      other.client.send({ type: 'turn', id: '1', input: 'x' })
      expect(await other.client.reply('1')).toHaveProperty('turn')
    }
  })

  it('counts a copied tab as one more use, which ends with it too', async () => {
    const { session, link, hello } = await linked(['talk'], { uses: 2 })
    const tab = await server.attach(hello)
    const resume = { attachment: tab.welcome['attachment'], token: tab.welcome['resume'] }
    const copied = { session: session.id, auth: { resume } }
    const copy = await server.attach(copied)
    expect(copy.welcome['attachment']).not.toBe(tab.welcome['attachment'])
    expect(await refusal(server.dial(copied))).toMatchObject({ code: 'unauthorized' })
    await session.revokeLink(link.id)
    for (const { client } of [tab, copy]) expect((await client.closed).code).toBe(4410)
  })

  it('of another session, and of a session that does not exist, get the same answer', async () => {
    const { link } = await linked(['talk'])
    const other = await server.holdfast.resolve({ key: newKey() })
    const auth = { link: link.token }
    const answers = [
      await refusal(server.dial({ session: other.id, auth })),
      await refusal(server.dial({ session: 'nowhere', auth })),
      await refusal(server.dial({ key: 'nowhere', auth })),
    ]
    expect(answers[0]).toMatchObject({ code: 'unauthorized', close: 4401 })
    for (const answer of answers) expect(answer).toEqual(answers[0])
  })
})

function newKey(): string {
  keys += 1
  return `key ${keys}`
}

function puppeteer(options: object = {}): Promise<Attached> {
  return server.attach({ key: newKey(), options: { agent: 'puppet', ...options } })
}

function sessionOf({ welcome }: Attached): string {
  return welcome['session'].id as string
}

/** The hello with which a lost attachment comes back. */
function helloOf({ client, welcome }: Attached) {
  const { attachment, resume } = welcome
  const auth = { resume: { attachment: String(attachment), token: String(resume) } }
  return { session: welcome['session'].id as string, auth, after: client.seen }
}

async function comeBack(attached: Attached, more: object = {}): Promise<Attached> {
  return server.attach({ ...helloOf(attached), ...more })
}

/** Cuts the connection, and waits until the session knows. */
async function lost(attached: Attached): Promise<void> {
  const { attachment } = attached.welcome
  await attached.client.cut()
  await until(async () => {
    const { attachments } = await server.holdfast.session(sessionOf(attached)).state()
    return attachments.some(({ id, state }) => id === attachment && state === 'detached')
  })
}

/** Waits until the session's log has an event of this type. */
async function logged(attached: Attached, type: SessionEvent['type']): Promise<void> {
  await until(async () => (await logOf(attached, type)).length > 0)
}

async function logOf(attached: Attached, type: SessionEvent['type']): Promise<SessionEvent[]> {
  const { events } = await server.holdfast.session(sessionOf(attached)).read(0, 1_000)
  return events
    .map(({ body }) => JSON.parse(body) as SessionEvent)
    .filter((event) => event.type === type)
}

/** The types of the log's events that came. */
function types(client: WireClient): string[] {
  return client.frames.filter(({ seq }) => seq !== undefined).map(({ type }) => type)
}

/** Fits the nth frame of a type. */
function nth(type: string, n: number): (frame: Frame) => boolean {
  let count = 0
  return (frame) => frame.type === type && (count += 1) === n
}

async function refusal(client: WireClient) {
  const { code: close, reason } = await client.closed
  const refuse = client.of('refuse')[0] ?? { type: 'none' }
  expect(reason).toBe(refuse['code'])
  const { code, retry, hint } = refuse
  return { code, close, retry, hint, reason: String(refuse['reason']) }
}

async function ending(client: WireClient) {
  const { code: close } = await client.closed
  return { code: client.of('ending')[0]?.['code'], close }
}
