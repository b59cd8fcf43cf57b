/** What the authority promises a runner, and what it does with what a runner tells it. */
import { afterEach, describe, expect, it } from 'vitest'
import {
  openHoldfast,
  type Agent,
  type AgentContext,
  type Holdfast,
  type Limits,
  type Runner,
  type RunnerSession,
  type SessionHandle,
} from 'holdfast'
import { gate } from '../support/gate.ts'

describe('the contract of a runner', () => {
  let holdfast: Holdfast | null = null

  const open = async (
    agents: Record<string, Agent | Runner>,
    limits: Partial<Limits> = {},
  ): Promise<Holdfast> => {
    holdfast = await openHoldfast({ store: 'memory:', agents, limits })
    return holdfast
  }
  const events = async (session: SessionHandle): Promise<any[]> =>
    (await session.read(0, 500)).events.map(({ body }) => JSON.parse(body) as unknown)

  afterEach(async () => {
    await holdfast?.close()
    holdfast = null
  })

  it.each([
    ['spread', (context: AgentContext): AgentContext => ({ ...context })],
    ['in a proxy', (context: AgentContext): AgentContext => new Proxy(context, {})],
    ['inherited', (context: AgentContext): AgentContext => Object.create(context) as AgentContext],
  ])('gives an agent a context that works %s', async (_, wrap) => {
    await open({
      async *wrapped(_turn, context) {
        const { session, signal, now, bind, history } = wrap(context)
        await bind('own-id')
        for await (const { text } of history()) yield text
        yield `${session.agent} ${signal.aborted} ${now() > 0} ${wrap(context).session.backend}`
      },
    })
    const { reply } = await holdfast!.turn({ key: 'k' }, 'hello')
    expect(reply?.text).toBe('wrapped false true own-id')
  })

  describe('an activity', () => {
    const busy = (data: readonly unknown[]): Agent =>
      async function* () {
        for (const one of data) yield { type: 'activity', kind: 'tool_use', data: one }
        yield 'done'
      }

    it('is recorded in its place, told to those who follow, and no part of the answer', async () => {
      await open({ busy: busy([{ tool: 'grep' }, undefined]) })
      const session = await holdfast!.resolve()
      const turn = session.turn('go')
      const parts: string[] = []
      for await (const part of turn) parts.push(part)
      expect(parts).toEqual(['done'])
      const log = await events(session)
      expect(log.map(({ type }) => type)).toEqual([
        'session.created',
        'turn.started',
        'turn.activity',
        'turn.activity',
        'message.added',
        'turn.done',
      ])
      expect(log[2]).toMatchObject({ turn: 't2', kind: 'tool_use', data: { tool: 'grep' } })
      expect(log[3].data).toBeNull()
      const followed: string[] = []
      for await (const { type } of session.events({ after: 2 })) {
        followed.push(type)
        if (type === 'turn.done') break
      }
      expect(followed).toEqual(['turn.activity', 'turn.activity', 'message.added', 'turn.done'])
    })

    it('leaves its size and its beginning when it is too large', async () => {
      await open({ busy: busy(['x'.repeat(5_000)]) }, { activityCharsMax: 100 })
      const session = await holdfast!.resolve()
      await session.turn('go')
      const [, , activity] = await events(session)
      const head = `"${'x'.repeat(99)}`
      expect(activity.data).toEqual({ truncated: true, chars: 5_002, head })
    })

    it('is dropped and counted beyond the bound, and the log says so', async () => {
      await open({ busy: busy([1, 2, 3, 4, 5]) }, { activitiesMax: 2 })
      const session = await holdfast!.resolve()
      expect(await session.turn('go')).toMatchObject({ state: 'done', reply: { text: 'done' } })
      const activities = (await events(session)).filter(({ type }) => type === 'turn.activity')
      expect(activities.map(({ kind, data }) => [kind, data])).toEqual([
        ['tool_use', 1],
        ['tool_use', 2],
        ['activities_dropped', { count: 3 }],
      ])
      expect(holdfast!.authority.counters.activitiesDropped).toBe(3)
    })

    it.each([
      ['cannot be written', 'tool_use', 1n],
      ['has no proper kind', 'a kind', 1],
    ])('that %s fails the turn, and the runner cleans up', async (_what, kind, data) => {
      const cleaned = gate()
      await open({
        async *odd() {
          try {
            yield { type: 'activity', kind, data }
          } finally {
            cleaned.open()
          }
        },
      })
      const session = await holdfast!.resolve()
      expect(await session.turn('go')).toMatchObject({
        state: 'failed',
        error: { code: 'runner_failed' },
      })
      await cleaned.opened
    })
  })

  describe('an ask whose signal aborts', () => {
    it('is withdrawn, before or after it was opened, and the others of the turn stay', async () => {
      const seen: unknown[] = []
      await open({
        async asker(_turn, context) {
          const late = new AbortController()
          const ask = (question: string, signal?: AbortSignal) =>
            context.ask({ kind: 'k', question, options: ['yes'], ...(signal ? { signal } : {}) })
          const kept = ask('kept')
          const one = ask('one', late.signal)
          const opened = async (): Promise<number> => (await session.state()).asks.length
          await expect.poll(opened).toBe(2)
          late.abort()
          seen.push(await one, await ask('two', AbortSignal.abort()))
          const [open] = (await session.state()).asks
          await session.answer(open?.id ?? '', 'yes')
          seen.push((await kept).outcome)
        },
      })
      const session = await holdfast!.resolve()
      expect((await session.turn('go')).state).toBe('done')
      expect(seen).toEqual([{ outcome: 'withdrawn' }, { outcome: 'withdrawn' }, 'answered'])
    })
  })

  describe("a backend's session id", () => {
    it('is durable when bind resolves, and no second one is taken', async () => {
      const seen: unknown[] = []
      await open({
        async binder(_turn, context) {
          await context.bind('b-1')
          seen.push(context.session.backend)
          seen.push((await events(session)).at(-1))
          await context.bind('b-1')
          await context.bind('b-2')
        },
      })
      const session = await holdfast!.resolve()
      expect(await session.turn('go')).toMatchObject({
        state: 'failed',
        error: { code: 'backend_bound' },
      })
      expect(seen).toEqual(['b-1', expect.objectContaining({ type: 'session.bound' })])
      expect((await session.state()).backend).toBe('b-1')
    })

    it.each([[''], ['x'.repeat(513)]])('may not be %j', async (backend) => {
      await open({ binder: (_turn, context) => context.bind(backend) })
      expect(await (await holdfast!.resolve()).turn('go')).toMatchObject({ state: 'failed' })
    })
  })

  describe('a runner that keeps something', () => {
    const keeper = (told: Partial<Runner>): Runner => ({
      async *run(turn, context) {
        const { id, backend } = context.session
        if (backend === null) await context.bind(`of ${id}`)
        yield { type: 'delta', text: turn.text }
        return undefined
      },
      ...told,
    })

    it('is told when a session of its own is closed, and when Holdfast is', async () => {
      const told: unknown[] = []
      const released = gate()
      const runner = keeper({
        release: async (session: RunnerSession) => {
          await released.opened
          told.push(session)
        },
        close: async () => void told.push('close'),
      })
      await open({ kept: runner, alias: runner, other: async () => 'x' })
      const [kept, other, open2] = await Promise.all([
        holdfast!.resolve({ agent: 'kept' }),
        holdfast!.resolve({ agent: 'other' }),
        holdfast!.resolve({ agent: 'kept' }),
      ])
      expect((await kept.turn('hello')).reply?.text).toBe('hello')
      await open2.turn('hello')
      await kept.close()
      await other.close()
      const closing = holdfast!.close()
      released.open()
      await closing
      expect(told).toEqual([{ id: kept.id, backend: `of ${kept.id}` }, 'close'])
    })

    it('harms nobody by failing or hanging at it', async () => {
      const runner = keeper({
        release: () => {
          throw new Error('no')
        },
        close: () => Promise.reject(new Error('no')),
      })
      const stone = keeper({ close: () => new Promise(() => undefined) })
      await open({ failing: runner, stone }, { runnerCloseMs: 5 })
      const session = await holdfast!.resolve()
      await session.turn('hello')
      await session.close()
      await expect(holdfast!.close()).resolves.toBeUndefined()
    })
  })
})
