/**
 * Copilot SDK, "prevent permission callback loss and event delivery to disposed sessions": a disposed
 * session stayed in the client's map and kept getting events; a permission request to it was silently
 * dropped, and with a single client the runtime waited for an answer for ever.
 *
 * The rule: a session leaves the map when it is closed, late events are dropped and counted, clean-up
 * happens even if the teardown fails, and an ask always settles.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openHoldfast, type Agent, type AskOutcome, type Holdfast } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'

describe('Copilot SDK: disposed sessions and permission requests', () => {
  let holdfast: Holdfast
  let outcomes: AskOutcome[]
  let release: Gate
  let stubbornEnded: Gate

  /** Asks for a permission, as a tool call would. */
  const asking = (onNobody: 'wait' | 'deny'): Agent => {
    return async (_turn, context) => {
      const outcome = await context.ask({
        kind: 'permission',
        question: 'May I run rm?',
        options: ['allow', 'deny'],
        onNobody,
      })
      outcomes.push(outcome)
      return outcome.outcome
    }
  }
  /** Goes on speaking after its session is gone, and fails while it cleans up. */
  const stubborn: Agent = async function* () {
    try {
      yield 'first'
      await release.opened
      yield 'too late'
    } finally {
      stubbornEnded.open()
      // oxlint-disable-next-line no-unsafe-finally -- the teardown that fails is the point
      throw new Error('teardown failed')
    }
  }

  beforeEach(async () => {
    outcomes = []
    release = gate()
    stubbornEnded = gate()
    const agents = { waits: asking('wait'), denies: asking('deny'), stubborn }
    holdfast = await openHoldfast({ store: 'memory:', agents })
  })
  afterEach(() => holdfast.close())

  it('delivers nothing to a closed session, and counts what came too late', async () => {
    const session = await holdfast.resolve({ agent: 'stubborn' })
    const seen: string[] = []
    const following = (async () => {
      for await (const event of session.events()) seen.push(event.type)
    })()
    const turn = session.turn('go')
    await until(() => seen.includes('delta'))
    await session.close()
    expect((await turn).state).toBe('cancelled')
    await following
    expect(seen.at(-1)).toBe('session.closed')
    const length = seen.length
    release.open()
    await stubbornEnded.opened
    await until(() => holdfast.authority.counters.outputsLate > 0)
    expect(seen).toHaveLength(length)
    const { events } = await session.read(0, 100)
    expect(JSON.parse(events.at(-1)?.body ?? '').type).toBe('session.closed')
  })

  it('removes a closed session from memory, however many there were', async () => {
    for (let n = 0; n < 1_000; n += 1) {
      const session = await holdfast.resolve({ key: `k${n}`, agent: 'denies' })
      if (n % 2 === 0) await session.turn('x')
      await session.close()
    }
    expect(holdfast.authority.heldCount).toBe(0)
  })

  it('cleans up even if the teardown of its runner fails', async () => {
    const session = await holdfast.resolve({ key: 'k', agent: 'stubborn' })
    const turn = session.turn('go')
    await turn.admission
    await session.close()
    release.open()
    await stubbornEnded.opened
    expect(holdfast.authority.heldCount).toBe(0)
    expect((await turn).state).toBe('cancelled')
    expect((await holdfast.resolve({ key: 'k' })).isNew).toBe(true)
  })

  it('settles an ask that has nobody to answer it, instead of hanging', async () => {
    const session = await holdfast.resolve({ agent: 'denies' })
    expect((await session.turn('x')).reply?.text).toBe('nobody_to_ask')
  })

  it('does not disguise a deadline as a denial', async () => {
    await holdfast.close()
    const agents = { waits: asking('wait') }
    holdfast = await openHoldfast({ store: 'memory:', agents, limits: { askMs: 5 } })
    const session = await holdfast.resolve()
    expect((await session.turn('x')).reply?.text).toBe('timed_out')
  })

  it('withdraws the ask of a session that is closed while it waits', async () => {
    const session = await holdfast.resolve({ agent: 'waits' })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    await session.close()
    expect((await turn).state).toBe('cancelled')
    await until(() => outcomes.length > 0)
    expect(outcomes).toEqual([{ outcome: 'withdrawn' }])
  })

  it('routes a permission request to its own session although another was disposed', async () => {
    const disposed = await holdfast.resolve({ key: 'a', agent: 'waits' })
    await disposed.attach({ answers: ['permission'] })
    await disposed.close()
    const session = await holdfast.resolve({ key: 'b', agent: 'waits' })
    const client = await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    const [ask] = await session.asks()
    await expect(disposed.answer(ask?.id ?? '', 'deny')).rejects.toMatchObject({
      code: 'session_closed',
    })
    await client.answer(ask?.id ?? '', 'allow')
    expect((await turn).reply?.text).toBe('answered')
    expect(outcomes).toEqual([{ outcome: 'answered', answer: 'allow', by: client.id }])
  })

  it('takes the answer of another client when the first one is gone, and only one answer', async () => {
    const session = await holdfast.resolve({ agent: 'denies' })
    const first = await session.attach({ answers: ['permission'] })
    const second = await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    const [ask] = await session.asks()
    await first.leave()
    await second.answer(ask?.id ?? '', 'deny')
    await expect(session.answer(ask?.id ?? '', 'allow')).rejects.toMatchObject({
      code: 'ask_settled',
    })
    expect((await turn).state).toBe('done')
    expect(outcomes).toMatchObject([{ answer: 'deny', by: second.id }])
  })

  it('keeps an ask over a lost connection and takes its answer after the client is back', async () => {
    const session = await holdfast.resolve({ agent: 'denies', reconnect: 'resume' })
    const client = await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    await client.lose()
    const [ask] = await session.asks()
    await client.resume()
    await client.answer(ask?.id ?? '', 'allow')
    expect((await turn).reply?.text).toBe('answered')
  })

  it('settles an ask when its only client leaves for good', async () => {
    const session = await holdfast.resolve({ agent: 'denies' })
    const client = await session.attach({ answers: ['permission'] })
    const turn = session.turn('x')
    await until(async () => (await session.asks()).length === 1)
    await client.leave()
    expect((await turn).reply?.text).toBe('nobody_to_ask')
  })
})
