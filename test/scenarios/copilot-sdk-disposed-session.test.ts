/**
 * Copilot SDK, "prevent permission callback loss and event delivery to disposed sessions": a disposed
 * session stayed in the client's map and kept getting events; a permission request to it was silently
 * dropped, and with a single client the runtime waited for an answer for ever.
 *
 * The rule: a session leaves the map when it is closed, late events are dropped and counted, clean-up
 * happens even if the teardown fails, and an ask always settles.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Agent, AskOutcome, Holdfast } from 'holdfast'
import { connect, type Client, type ClientSession } from 'holdfast/client'
import { WebSocket } from 'ws'
import { gate, until, type Gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'
import { manySessions } from '../support/store-under-test.ts'

describe('Copilot SDK: disposed sessions and permission requests', () => {
  let server: TestServer
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
    server = await serve({ agents })
    holdfast = server.holdfast
  })
  afterEach(() => server.close())

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
    const dispose = async (n: number): Promise<void> => {
      const session = await holdfast.resolve({ key: `k${n}`, agent: 'denies' })
      if (n % 2 === 0) await session.turn('x')
      await session.close()
    }
    for (let n = 0; n < manySessions(10_000); n += 100) {
      await Promise.all(Array.from({ length: 100 }, (_, index) => dispose(n + index)))
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
    await server.close()
    server = await serve({ agents, limits: { askMs: 5 } })
    holdfast = server.holdfast
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
    const settled = { outcome: 'answered', answer: 'allow', attachment: client.id }
    expect(outcomes).toMatchObject([settled])
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
    expect(outcomes).toMatchObject([{ answer: 'deny', attachment: second.id }])
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

  describe('as a client over a socket sees it', () => {
    let sockets: WebSocket[]
    let client: Client

    class Kept extends WebSocket {
      constructor(url: string) {
        super(url)
        sockets.push(this)
      }
    }

    const attachments = async (session: ClientSession): Promise<number> =>
      (await holdfast.session(session.info?.id ?? '').state()).attachments.length

    beforeEach(() => {
      sockets = []
      client = connect({ url: server.url, webSocket: Kept, storage: null })
    })

    it('hears nothing any more once it is disposed of, though the turn goes on', async () => {
      const session = client.session({ key: 'k', agent: 'stubborn' })
      const heard: string[] = []
      session.on('event', ({ type }) => heard.push(type))
      session.on('delta', ({ type }) => heard.push(type))
      session.on('state', ({ name }) => heard.push(name))
      const turn = session.turn('go')
      await until(() => heard.includes('delta'))
      const { length } = heard
      session.dispose()
      await expect(turn).rejects.toMatchObject({ code: 'left' })
      release.open()
      await stubbornEnded.opened
      await until(async () => (await attachments(session)) === 0)
      expect(heard).toHaveLength(length)
    })

    it('settles all that is pending when it is disposed of while it reconnects', async () => {
      const session = client.session({ key: 'k', agent: 'waits', answers: ['permission'] })
      const heard: string[] = []
      const turn = session.turn('x')
      await until(() => session.asks.length === 1)
      session.on('event', ({ type }) => heard.push(type))
      sockets.at(-1)?.terminate()
      await until(() => session.state.name === 'reconnecting')
      const answer = session.answer(session.asks[0]?.id ?? '', 'allow')
      const closing = session.close()
      session.dispose()
      for (const pending of [turn, answer, closing]) {
        await expect(pending).rejects.toMatchObject({ code: 'left' })
      }
      await holdfast.session(session.info?.id ?? '').close()
      expect(outcomes).toEqual([{ outcome: 'withdrawn' }])
      expect(heard).toEqual([])
    })

    it('is not asked what it has no handler for: that settles as nobody_to_ask', async () => {
      const session = client.session({ key: 'k', agent: 'denies' })
      expect((await session.turn('x')).reply?.text).toBe('nobody_to_ask')
      session.dispose()
    })

    it('leaves the question to another client when it goes, and that one answers', async () => {
      const options = { key: 'k', agent: 'denies', answers: ['permission'] }
      const [first, second] = [client.session(options), client.session({ ...options, name: '2' })]
      await Promise.all([first.ready, second.ready])
      const turn = second.turn('x')
      await until(() => first.asks.length === 1 && second.asks.length === 1)
      first.dispose()
      await second.answer(second.asks[0]?.id ?? '', 'allow')
      expect((await turn).reply?.text).toBe('answered')
      const settled = { outcome: 'answered', answer: 'allow', attachment: second.attachment }
      expect(outcomes).toMatchObject([settled])
      second.dispose()
    })

    it('leaves nothing behind, however often it comes and goes', async () => {
      for (let n = 0; n < 200; n += 1) {
        const session = client.session({ key: `k${n}`, agent: 'denies', reconnect: 'resume' })
        await session.ready
        if (n % 2 === 0) await session.turn('x')
        if (n % 4 === 0) sockets.at(-1)?.terminate()
        session.dispose()
        if (n % 4 === 0) await holdfast.session(session.info?.id ?? '').close()
      }
      await until(() => holdfast.authority.heldCount === 0)
      await until(() => sockets.every(({ readyState }) => readyState === WebSocket.CLOSED))
    })
  })
})
