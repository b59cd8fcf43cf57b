/** Holdfast as a library, on SQLite: what its guide promises, turn by turn. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Agent, type Holdfast, type Limits, type SessionHandle } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'

describe('the library', () => {
  let folder: string
  let holdfast: Holdfast
  let hold: Gate
  const runs: string[] = []

  const agents: Record<string, Agent> = {
    echo: async ({ text }) => text,
    /** Waits for the gate, or for its signal. */
    held: async ({ text }, { signal }) => {
      runs.push(text)
      await Promise.race([
        hold.opened,
        new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason as Error)),
        ),
      ])
      return text
    },
    deaf: async ({ text }) => hold.opened.then(() => text),
    throwing: async () => {
      throw new Error('out of order')
    },
    verbose: async function* () {
      yield 'thinking'
      yield { type: 'message', text: 'a step', data: { tool: 'grep' } }
      yield 'the '
      yield 'end'
    },
    endless: async function* () {
      for (;;) yield 'x'.repeat(1_000)
    },
  }

  const open = (limits: Partial<Limits> = {}): Promise<Holdfast> =>
    openHoldfast({ store: `sqlite:${join(folder, 'holdfast.db')}`, agents, limits })
  const reopen = async (limits: Partial<Limits> = {}): Promise<void> => {
    await holdfast.close()
    holdfast = await open(limits)
  }
  const types = async (session: SessionHandle): Promise<string[]> =>
    (await session.read(0, 500)).events.map(({ body }) => JSON.parse(body).type)

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-library-'))
    hold = gate()
    runs.length = 0
    holdfast = await open()
  })
  afterEach(async () => {
    hold.open()
    await holdfast.close()
    await rm(folder, { recursive: true })
  })

  describe('when the lane is busy', () => {
    it('reject refuses at once, and only then', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('first', { busy: 'reject' })
      await first.admission
      await expect(session.turn('second', { busy: 'reject' })).rejects.toMatchObject({
        code: 'session_busy',
        details: { position: 1 },
      })
      hold.open()
      expect((await first).state).toBe('done')
    })

    it('queue is bounded in depth', async () => {
      await reopen({ queuedTurnsMax: 2 })
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('0')
      await first.admission
      const waiting = [session.turn('1'), session.turn('2')]
      await until(async () => (await session.state()).running !== null)
      await expect(session.turn('3')).rejects.toMatchObject({ details: { position: 3 } })
      hold.open()
      expect((await Promise.all(waiting)).map(({ state }) => state)).toEqual(['done', 'done'])
      expect(runs).toEqual(['0', '1', '2'])
    })

    it('waiting and submitted turns stand in one queue, in the order they came', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('0')
      await first.admission
      const second = session.turn('1')
      const third = await session.submit('2')
      const fourth = session.turn('3')
      expect(third.state).toBe('queued')
      hold.open()
      await Promise.all([first, second, fourth])
      await session.finished(third.id)
      expect(runs).toEqual(['0', '1', '2', '3'])
    })

    it('interrupt stops the running turn and then runs', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('first')
      await first.admission
      const second = session.turn('second', { busy: 'interrupt' })
      expect(await first).toMatchObject({ state: 'cancelled', reason: 'interrupted_by_newer' })
      hold.open()
      expect((await second).reply?.text).toBe('second')
    })

    it('collect joins what waits into one turn, and all get its answer', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('0')
      await first.admission
      const joined = ['a', 'b', 'c'].map((text) => session.turn(text, { busy: 'collect' }))
      hold.open()
      const records = await Promise.all(joined)
      expect(new Set(records.map(({ id }) => id)).size).toBe(1)
      expect(records[0]?.reply?.text).toBe('a\n\nb\n\nc')
      expect(runs).toEqual(['0', 'a\n\nb\n\nc'])
    })

    it('a caller that gives up leaves the queue; an admitted turn goes on', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const [admitted, waiting] = [new AbortController(), new AbortController()]
      const first = session.turn('first', { signal: admitted.signal })
      await first.admission
      const second = session.turn('second', { signal: waiting.signal })
      admitted.abort()
      waiting.abort()
      await expect(second).rejects.toMatchObject({ code: 'turn_over' })
      hold.open()
      expect((await first).state).toBe('done')
      expect(runs).toEqual(['first'])
    })

    it('onDisconnect cancel takes an admitted turn along', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const caller = new AbortController()
      const turn = session.turn('x', { signal: caller.signal, onDisconnect: 'cancel' })
      await turn.admission
      caller.abort()
      expect(await turn).toMatchObject({ state: 'cancelled', reason: 'caller_gone' })
    })
  })

  describe('a repeated request', () => {
    it('joins the turn that waits, runs or is done, and never runs twice', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('first')
      await first.admission
      const again = (): Promise<string> =>
        Promise.resolve(session.turn('once', { idempotencyKey: 'k' })).then(({ id }) => id)
      const joined = [again(), again(), again()]
      hold.open()
      const ids = [...(await Promise.all(joined)), await again()]
      expect(new Set(ids).size).toBe(1)
      expect(runs).toEqual(['first', 'once'])
    })

    it('is remembered over a restart, result and all', async () => {
      const session = await holdfast.resolve({ key: 'k' })
      const first = await session.turn('hello', { idempotencyKey: 'once' })
      await reopen()
      const again = await holdfast.session(session.id).turn('hello', { idempotencyKey: 'once' })
      expect(again).toEqual(first)
    })

    it('with another input is refused', async () => {
      const session = await holdfast.resolve()
      await session.turn('one', { idempotencyKey: 'k' })
      await expect(session.turn('two', { idempotencyKey: 'k' })).rejects.toMatchObject({
        code: 'idempotency_mismatch',
      })
    })
  })

  describe('cancelling', () => {
    it('ends a turn that waits without running it', async () => {
      const session = await holdfast.resolve({ agent: 'held' })
      const first = session.turn('first')
      await first.admission
      const queued = await session.submit('never')
      expect(await session.cancelTurn(queued.id)).toMatchObject({ state: 'cancelled' })
      hold.open()
      await first
      expect(runs).toEqual(['first'])
      expect(await session.cancelTurn(queued.id)).toMatchObject({ state: 'cancelled' })
    })

    it('goes on without a runner that does not listen', async () => {
      await reopen({ cancelGraceMs: 5 })
      const session = await holdfast.resolve({ agent: 'deaf' })
      const turn = session.turn('x')
      const { turn: id } = await turn.admission
      expect(await session.cancelTurn(id)).toMatchObject({
        state: 'cancelled',
        endedAt: expect.any(Number),
      })
      hold.open()
      expect((await session.turn('y')).reply?.text).toBe('y')
    })
  })

  describe('a runner that misbehaves', () => {
    it('by throwing fails its turn and no other', async () => {
      const session = await holdfast.resolve({ agent: 'throwing' })
      const [first, second] = await Promise.all([session.turn('x'), session.turn('y')])
      expect(first).toMatchObject({
        state: 'failed',
        error: { code: 'runner_failed', message: 'out of order' },
      })
      expect(second.state).toBe('failed')
    })

    it('by never ending is stopped when its time is over', async () => {
      await reopen({ turnMs: 5, cancelGraceMs: 5 })
      const session = await holdfast.resolve({ agent: 'deaf' })
      expect(await session.turn('x')).toMatchObject({
        state: 'failed',
        error: { code: 'turn_timeout' },
      })
    })

    it('by saying too much is cut off', async () => {
      await reopen({ replyCharsMax: 10_000 })
      const session = await holdfast.resolve({ agent: 'endless' })
      expect(await session.turn('x')).toMatchObject({
        state: 'failed',
        error: { code: 'body_too_large' },
      })
    })
  })

  it('records messages, and keeps deltas only while they are news', async () => {
    const session = await holdfast.resolve({ agent: 'verbose' })
    const turn = await session.turn('go')
    expect(turn.reply).toEqual({ text: 'the end' })
    expect(await types(session)).toEqual([
      'session.created',
      'turn.started',
      'message.added',
      'message.added',
      'turn.done',
    ])
    const messages = []
    for await (const { role, text, data } of session.messages()) messages.push({ role, text, data })
    expect(messages).toEqual([
      { role: 'user', text: 'go', data: undefined },
      { role: 'assistant', text: 'a step', data: { tool: 'grep' } },
      { role: 'assistant', text: 'the end', data: undefined },
    ])
  })

  it('lets go of idle sessions and finds them again', async () => {
    await reopen({ idleSessionsMax: 3, snapshotEvery: 4 })
    for (let n = 0; n < 12; n += 1) {
      const session = await holdfast.resolve({ key: `k${n}` })
      for (let turn = 0; turn < 3; turn += 1) await session.turn(`${n}.${turn}`)
      await until(() => (holdfast.authority.trim(), holdfast.authority.heldCount <= 3))
    }
    const session = await holdfast.resolve({ key: 'k0' })
    expect(session.isNew).toBe(false)
    expect(await session.state()).toMatchObject({ turns: 3, seq: 10 })
    expect((await session.turn('again')).reply?.text).toBe('again')
  })

  it('closes a session that was idle past its time to live, and erases it in the end', async () => {
    await reopen({ sweepMs: 5, retainMs: 0 })
    const session = await holdfast.resolve({ key: 'k', ttlMs: 1 })
    await until(async () => {
      const { row } = await holdfast.authority.store.read(session.id, 0, 0)
      return row?.state === 'erased'
    })
    await expect(session.state()).rejects.toMatchObject({ code: 'session_erased' })
    await expect(holdfast.resolve({ id: session.id })).rejects.toMatchObject({
      code: 'session_erased',
    })
    expect((await holdfast.resolve({ key: 'k' })).isNew).toBe(true)
  })

  it('interrupts what ran and goes on with what waited when it is opened again', async () => {
    const session = await holdfast.resolve({ key: 'k', agent: 'held' })
    const running = session.turn('ran')
    await running.admission
    const queued = await session.submit('waited')
    await holdfast.close()
    expect((await running).state).toBe('interrupted')
    hold.open()
    holdfast = await open()
    const again = await holdfast.resolve({ key: 'k' })
    expect(again.id).toBe(session.id)
    expect(await again.finished(queued.id)).toMatchObject({
      state: 'done',
      reply: { text: 'waited' },
    })
  })

  it.each([
    ['an empty key', { key: '' }, 'key'],
    ['a key of 513 bytes', { key: 'x'.repeat(513) }, 'key'],
    ['half a character', { key: '\ud800' }, 'key'],
    ['an id with a space', { id: 'a b' }, 'id'],
    ['an unknown policy', { reconnect: 'maybe' as 'none' }, 'reconnect'],
    ['no time to live', { ttlMs: 0 }, 'ttlMs'],
    ['a negative grace time', { graceMs: -1 }, 'graceMs'],
    ['a label that is no text', { labels: { a: 1 as unknown as string } }, 'labels'],
  ])('refuses %s and names the field', async (_what, options, field) => {
    await expect(holdfast.resolve(options)).rejects.toMatchObject({
      code: 'invalid_field',
      details: { field },
    })
  })

  it('takes any text as a key, and tells those apart that only look alike', async () => {
    const keys = [
      '\u00e9',
      'e\u0301',
      '👩‍🚀',
      'a\u0000b',
      'a',
      ' ',
      '../..',
      "'; DROP TABLE sessions; --",
    ]
    const sessions = await Promise.all(keys.map((key) => holdfast.resolve({ key })))
    expect(new Set(sessions.map(({ id }) => id)).size).toBe(keys.length)
    for (const [index, key] of keys.entries()) {
      expect(await holdfast.resolve({ key })).toMatchObject({ id: sessions[index]?.id, key })
    }
  })
})
