/** `busy: "steer"`: a further message for the running turn. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Runner } from '../index.ts'
import { withIncluded } from './access.ts'
import type { Holdfast } from './holdfast.ts'
import { LogCheck } from './log-check.ts'
import { MemoryStore } from '../stores/memory.ts'
import { turnRequest } from './requests.ts'
import type { SessionHandle } from './session-handle.ts'

let hold: Holdfast
let session: SessionHandle
let end: () => void
let takes: (text: string) => Promise<boolean>
let given: string[]

beforeEach(async () => {
  const ends: (() => void)[] = []
  end = () => ends.shift()?.()
  takes = async () => true
  given = []
  const runner: Runner = {
    async *run({ text }, { signal }) {
      await new Promise<void>((resolve) => {
        ends.push(resolve)
        signal.addEventListener('abort', () => resolve())
      })
      yield { type: 'delta', text: [text, ...given].join('+') }
      return undefined
    },
    steer: async (_session, { text }) => {
      const isTaken = await takes(text)
      if (isTaken) given.push(text)
      return isTaken
    },
  }
  hold = await openHoldfast({
    store: new MemoryStore(),
    agents: { steered: runner, plain: async ({ text }) => text },
    limits: { cancelGraceMs: 50 },
  })
  session = await hold.resolve({ key: 'k', agent: 'steered' })
})
afterEach(() => hold.close())

async function log() {
  const { events } = await session.read(0, 500)
  return events.map(({ body }) => JSON.parse(body))
}

async function assertLinear(): Promise<void> {
  const check = new LogCheck({ isAtRest: true, hasUniqueKeys: true })
  for (const event of await log()) check.add(event)
  expect(check.violations()).toEqual([])
}

const steer = (text: string, idempotencyKey?: string) =>
  session.turn(text, { busy: 'steer', ...(idempotencyKey === undefined ? {} : { idempotencyKey }) })

describe('a message that steers', () => {
  it('is not taken of a caller that lost access after it was let in', async () => {
    const first = session.turn('first')
    await first.admission
    const by = { kind: 'token', issuer: 'holdfast', id: 'bob' } as const
    const access = { principal: 'bob', groups: [], scopes: withIncluded(['talk']) }
    const live = await hold.authority.open(session.id)
    const message = () => turnRequest('m', { busy: 'steer' }, { by, access }, hold.authority)
    await session.share({ with: 'bob', scopes: ['talk'] })
    expect(await live.queue.enter(message())).toMatchObject({ isSteered: true })
    await session.unshare('bob')
    const late = live.queue.enter(message())
    await expect(late).rejects.toMatchObject({ code: 'session_unknown' })
    end()
    expect((await first).reply?.text).toBe('first+m')
    await assertLinear()
  })

  it('is taken by the running turn, whose one result covers both', async () => {
    const first = session.turn('first')
    const { turn } = await first.admission
    const second = steer('second')
    expect(await second.admission).toMatchObject({ turn, isSteered: true })
    end()
    const [one, other] = await Promise.all([first, second])
    expect(one).toEqual(other)
    expect(one.reply?.text).toBe('first+second')
    const events = await log()
    const steering = events.find(({ type }) => type === 'turn.steering')
    expect(events.find(({ type }) => type === 'turn.steered')).toMatchObject({
      turn,
      steering: steering.seq,
      input: 'second',
    })
    const messages = []
    for await (const { role, text } of session.messages()) messages.push(`${role} ${text}`)
    expect(messages).toEqual(['user first', 'user second', 'assistant first+second'])
    await assertLinear()
  })

  it('is given to the agent once for all requests with its key, then and later', async () => {
    const first = session.turn('first')
    await first.admission
    const both = await Promise.all([steer('m', 'key').admission, steer('m', 'key').admission])
    expect(both.map(({ isSteered }) => isSteered)).toEqual([true, true])
    end()
    await first
    expect(await steer('m', 'key').admission).toMatchObject({ isSteered: true })
    await expect(steer('another', 'key')).rejects.toMatchObject({ code: 'idempotency_mismatch' })
    expect(given).toEqual(['m'])
    await assertLinear()
  })

  it('is a turn of its own if the agent does not take it, found again by its key', async () => {
    takes = async () => false
    const first = session.turn('first')
    const { turn } = await first.admission
    const second = steer('second', 'key')
    const admitted = await second.admission
    expect(admitted.isSteered).toBe(false)
    expect(admitted.turn).not.toBe(turn)
    end()
    await first
    await expect.poll(async () => (await session.state()).running?.id).toBe(admitted.turn)
    end()
    expect((await second).reply?.text).toBe('second')
    expect(await steer('second', 'key').admission).toMatchObject({ turn: admitted.turn })
    const queued = (await log()).find(({ type }) => type === 'turn.queued')
    expect(queued).toMatchObject({ turn: admitted.turn, refusedBy: turn })
    await assertLinear()
  })

  it('queues if no turn runs, if the agent cannot, and with settings of its own', async () => {
    const alone = steer('alone')
    expect(await alone.admission).toMatchObject({ isSteered: false })
    end()
    await alone
    const other = await hold.resolve({ key: 'other', agent: 'plain' })
    expect(await other.turn('x', { busy: 'steer' }).admission).toMatchObject({ isSteered: false })
    const first = session.turn('first')
    await first.admission
    const own = session.turn('own', { busy: 'steer', settings: { onNobody: 'deny' } })
    end()
    await first
    expect(await own.admission).toMatchObject({ isSteered: false })
    end()
    await own
    await assertLinear()
  })

  it('is refused with an error if the agent never says whether it took it', async () => {
    takes = () => new Promise(() => undefined)
    const first = session.turn('first')
    await first.admission
    const second = steer('second')
    await expect.poll(async () => (await log()).at(-1).type).toBe('turn.steering')
    end()
    await first
    await expect(second).rejects.toMatchObject({ code: 'turn_over' })
    await assertLinear()
  })

  it('settles when the session is closed meanwhile', async () => {
    let answer: (isTaken: boolean) => void = () => undefined
    takes = () => new Promise((resolve) => (answer = resolve))
    const first = session.turn('first')
    await first.admission
    const second = steer('second')
    await expect.poll(async () => (await log()).at(-1).type).toBe('turn.steering')
    await session.close()
    answer(false)
    // Not `session_closed`, with which a request by key would be made again in a new session.
    await expect(second).rejects.toMatchObject({ code: 'turn_over' })
    await first
  })
})
