/** What agents and callers may do wrong, together or on purpose: nobody else is harmed by it. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Agent, type Holdfast, type SessionHandle } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'

let holdfast: Holdfast
/** The agent `waits` ends with this, unless it is stopped before. */
let release: Gate
let ran: string[]

const waits: Agent = async ({ text }, { signal }) => {
  ran.push(text)
  const stopped = new Promise((resolve) => {
    signal.addEventListener('abort', resolve)
  })
  await Promise.race([release.opened, stopped])
  return text
}
const asks: Agent = async (_turn, context) =>
  (await context.ask({ kind: 'permission', question: 'May I?', onNobody: 'deny' })).outcome
const wrong = {
  number: async () => 42,
  object: async () => ({ answer: 'x' }),
  nothing: async () => ({ text: null }),
  yieldsNumber: async function* () {
    yield 5
  },
  yieldsMessage: async function* () {
    yield { type: 'message', text: 5 }
  },
  yieldsNull: async function* () {
    yield null
  },
  unprintable: async () => {
    throw Object.create(null) as Error
  },
  hostile: async () => {
    // oxlint-disable-next-line no-throw-literal -- that anything can be thrown is the point
    throw {
      toString() {
        throw new Error('no')
      },
    } as unknown as Error
  },
} as unknown as Record<string, Agent>

beforeEach(async () => {
  ran = []
  release = gate()
  holdfast = await openHoldfast({ store: 'memory:', agents: { waits, asks, ...wrong } })
})
afterEach(() => holdfast.close())

async function running(session: SessionHandle): Promise<void> {
  await until(async () => (await session.state()).running !== null)
}

describe('an agent', () => {
  it.each(Object.keys(wrong))(
    'that says what it must not (%s) fails its turn alone',
    async (agent) => {
      const session = await holdfast.resolve({ key: 'k', agent })
      for (const _ of [1, 2]) {
        const turn = await session.turn('x')
        expect(turn).toMatchObject({ state: 'failed', error: { code: 'runner_failed' } })
        expect(turn.error?.message).toEqual(expect.stringMatching(/\w/))
      }
    },
  )

  it('may ask and be answered only so much', async () => {
    const asker: Agent = async (_turn, context) => {
      const long = { kind: 'permission', question: 'x'.repeat(100_000) }
      await expect(context.ask(long)).rejects.toMatchObject({ code: 'body_too_large' })
      return (await context.ask({ kind: 'permission', question: 'May I?' })).outcome
    }
    const own = await openHoldfast({ store: 'memory:', agents: { asker } })
    const session = await own.resolve({ key: 'k' })
    const client = await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    const ask = (await session.asks())[0]?.id ?? ''
    const tooMuch = client.answer(ask, 'x'.repeat(100_000))
    await expect(tooMuch).rejects.toMatchObject({ code: 'body_too_large' })
    await client.answer(ask, 'yes')
    expect((await turn).reply?.text).toBe('answered')
    await own.close()
  })
})

describe('collect', () => {
  it('joins no more than would do as one request, and no more than may wait', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    await running(session)
    const megabyte = 'x'.repeat(1_000_000)
    const turns = Array.from({ length: 3 }, () => session.turn(megabyte, { busy: 'collect' }))
    const small = Array.from({ length: 253 }, () => session.turn('s', { busy: 'collect' }))
    await expect(session.turn('one more', { busy: 'collect' })).rejects.toMatchObject({
      code: 'session_busy',
    })
    release.open()
    const all = await Promise.all([first, ...turns, ...small])
    expect(all.every(({ state }) => state === 'done')).toBe(true)
    expect(ran.length).toBe(4)
    expect(ran.every(({ length }) => length <= 1_048_576)).toBe(true)
  })

  it('joins no more than that in the log either', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    await running(session)
    const input = 'x'.repeat(600_000)
    for (const _ of [1, 2]) await session.submit(input, { busy: 'collect' })
    expect((await session.state()).queued).toHaveLength(2)
    release.open()
    await first
  })
})

it('inputs that wait are bounded together', async () => {
  const session = await holdfast.resolve({ key: 'k' })
  const first = session.turn('first')
  await running(session)
  const input = 'x'.repeat(1_000_000)
  const outcomes = await Promise.allSettled(Array.from({ length: 40 }, () => session.submit(input)))
  const refused = outcomes.filter(({ status }) => status === 'rejected')
  expect(refused.length).toBeGreaterThan(20)
  expect(refused[0]).toMatchObject({ reason: { code: 'session_busy' } })
  release.open()
  await first
})

describe('interrupt', () => {
  it('stops what runs when it is next, and is then not refused any more', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    await running(session)
    const next = session.turn('next', { busy: 'interrupt', waitMs: 0 })
    expect((await first).state).toBe('cancelled')
    release.open()
    expect((await next).state).toBe('done')
  })

  it('stops nothing while others are before it: a refusal means that nothing happened', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    await running(session)
    const second = session.turn('second')
    const third = session.turn('third', { busy: 'interrupt', waitMs: 50 })
    await expect(third).rejects.toMatchObject({ code: 'session_busy' })
    expect((await session.state()).running?.input).toBe('first')
    release.open()
    expect((await Promise.all([first, second])).map(({ state }) => state)).toEqual(['done', 'done'])
  })

  it('stops a turn whose start is just being recorded', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const first = session.turn('first')
    const next = session.turn('next', { busy: 'interrupt' })
    expect((await first).state).toBe('cancelled')
    release.open()
    expect((await next).state).toBe('done')
  })
})

it('reject refuses only for the sake of turns', async () => {
  const session = await holdfast.resolve({ key: 'k' })
  release.open()
  for (let round = 0; round < 20; round += 1) {
    const linking = session.createLink({ scopes: ['watch'] })
    expect((await session.turn('x', { busy: 'reject' })).state).toBe('done')
    await session.revokeLink((await linking).id)
  }
})

it('one key with two bodies at once is refused to the second, whichever way it comes', async () => {
  const session = await holdfast.resolve({ key: 'k' })
  const first = session.turn('first')
  await running(session)
  const waiting = session.turn('a', { idempotencyKey: 'i' })
  await expect(session.submit('b', { idempotencyKey: 'i' })).rejects.toMatchObject({
    code: 'idempotency_mismatch',
  })
  release.open()
  expect((await Promise.all([first, waiting])).map(({ state }) => state)).toEqual(['done', 'done'])
})

it('whoever asks for a session by its id is not refused for the key of another caller', async () => {
  await holdfast.resolve({ key: 'taken' })
  const [bad, good] = await Promise.allSettled([
    holdfast.resolve({ id: 'own', key: 'taken' }),
    holdfast.resolve({ id: 'own' }),
  ])
  expect(bad).toMatchObject({ status: 'rejected', reason: { code: 'key_taken' } })
  expect(good).toMatchObject({ status: 'fulfilled', value: { id: 'own' } })
})

describe('a link', () => {
  it('for one use is used once, however many come at the same time', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const { token, id } = await session.createLink({ scopes: ['watch'], uses: 1 })
    const attach = () => session.attach({ role: 'watcher', link: token })
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, attach))
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    await expect(attach()).rejects.toMatchObject({ code: 'unauthorized' })
    expect((await session.state()).links).toMatchObject([{ id, uses: 0 }])
  })

  it('that is revoked lets nobody in who comes at the same time', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    for (const role of ['watcher', 'driver'] as const) {
      const { token, id } = await session.createLink({ scopes: ['talk'] })
      const coming = session.attach({ role, link: token })
      const [, late] = [session.revokeLink(id), session.attach({ role, link: token })]
      await Promise.allSettled([coming, late])
      expect((await session.state()).attachments).toEqual([])
      expect((await holdfast.authority.open(session.id)).watchers.count).toBe(0)
    }
  })

  it('fills its own places only, and those of who is away first', async () => {
    const session = await holdfast.resolve({ key: 'k' })
    const { token } = await session.createLink({ scopes: ['talk'] })
    for (let n = 0; n < 200; n += 1) await (await session.attach({ link: token })).lose()
    expect((await session.state()).attachments).toHaveLength(64)
    for (let n = 0; n < 64; n += 1) await session.attach({ link: token })
    await expect(session.attach({ link: token })).rejects.toMatchObject({ code: 'too_many' })
    await session.attach()
  })
})

describe('an ask that nobody is left to answer', () => {
  it('settles when its only client is taken over by one that does not answer', async () => {
    const session = await holdfast.resolve({ key: 'k', agent: 'asks', exclusive: true })
    await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    await session.attach({ take: true })
    expect((await turn).reply?.text).toBe('nobody_to_ask')
  })

  it('settles when its only client comes back and answers nothing any more', async () => {
    const session = await holdfast.resolve({ key: 'k', agent: 'asks' })
    const client = await session.attach({ answers: ['permission'], resumable: true })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    await session.resume(client.id, client.token ?? '', { answers: [] })
    expect((await turn).reply?.text).toBe('nobody_to_ask')
  })
})
