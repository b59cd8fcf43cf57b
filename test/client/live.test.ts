/** The client against the real server, over real sockets, in Node. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import {
  connect,
  type ClientSession,
  type ClientSessionOptions,
  type ClientState,
  type ConnectOptions,
} from '../../src/client/index.ts'
import type { Agent, Holdfast } from 'holdfast'
import { gate, until, type Gate } from '../support/gate.ts'
import { serve, type TestServer } from '../support/server.ts'
import { FakeStorage, outcome } from './fakes.ts'

/** Sockets that a test can cut, and whose incoming messages it can lose. */
class Cable extends WebSocket {
  static readonly all: Cable[] = []
  /** A message with this in it is lost, and the connection with it. */
  static cutAt: string | null = null

  constructor(url: string) {
    super(url)
    Cable.all.push(this)
  }

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (event === 'message' && Cable.cutAt !== null && String(args[0]).includes(Cable.cutAt)) {
      Cable.cutAt = null
      this.terminate()
      return false
    }
    return super.emit(event, ...args)
  }
}

const isWord = (told: string): boolean => /[a-z]/.test(told)

describe('the client and the server', () => {
  let holdfast: Holdfast
  let server: TestServer
  let sessions: ClientSession[]
  /** One for each word that the agent `paced` says. */
  let words: Gate[]

  const paced: Agent = async function* ({ text }, { signal }) {
    const stopped = new Promise((resolve) => {
      signal.addEventListener('abort', resolve)
    })
    for (const [index, word] of text.split(/(?<=\s)/).entries()) {
      await Promise.race([words[index]?.opened, stopped])
      if (signal.aborted) return
      yield word
    }
  }
  const asks: Agent = async (_turn, context) => {
    const question = { kind: 'permission', question: 'May I?', options: ['allow', 'deny'] }
    const settled = await context.ask(question)
    return settled.outcome === 'answered' ? String(settled.answer) : settled.outcome
  }
  const echo: Agent = async ({ text }) => text

  beforeEach(async () => {
    words = Array.from({ length: 4 }, () => gate())
    sessions = []
    Cable.all.length = 0
    Cable.cutAt = null
    server = await serve({ agents: { echo, paced, asks } })
    holdfast = server.holdfast
  })

  afterEach(async () => {
    for (const session of sessions) session.dispose()
    await server.close()
  })

  function open(options: ClientSessionOptions, connecting: ConnectOptions = {}): ClientSession {
    const client = connect({ url: server.url, webSocket: Cable, ...connecting })
    const session = client.session(options)
    sessions.push(session)
    return session
  }

  function cut(): void {
    Cable.all.at(-1)?.terminate()
  }

  async function stateOf(session: ClientSession, name: ClientState['name']): Promise<any> {
    await until(() => session.state.name === name)
    return session.state
  }

  it('take a turn, and its answer comes in parts', async () => {
    const session = open({ key: 'chat', agent: 'paced' })
    const turn = session.turn('one two')
    const parts: string[] = []
    const reading = (async () => {
      for await (const part of turn) parts.push(part)
    })()
    words[0]?.open()
    await until(() => parts.length === 1)
    words[1]?.open()
    expect(await turn).toMatchObject({ state: 'done', reply: { text: 'one two' }, error: null })
    await reading
    expect(parts).toEqual(['one ', 'two'])
    expect(session.info).toMatchObject({ key: 'chat', agent: 'paced' })
  })

  it('miss nothing and repeat nothing when the connection is cut in the middle of a turn', async () => {
    const session = open({ key: 'chat', agent: 'paced' })
    const told: number[] = []
    const parts: string[] = []
    session.on('event', ({ seq }) => told.push(seq))
    session.on('delta', ({ text }) => parts.push(text))
    const turn = session.turn('one two three four')
    for (const [index, word] of words.entries()) {
      word.open()
      if (index === 3) break
      await until(() => parts.length === index + 1)
      cut()
      await stateOf(session, 'reconnecting')
      await stateOf(session, 'live')
    }
    expect((await turn).reply?.text).toBe('one two three four')
    expect(parts.join('')).toBe('one two three four'.slice(0, parts.join('').length))
    const heard: string[] = []
    for await (const part of turn) heard.push(part)
    expect(heard.join('')).toBe('one two three four')
    expect(told).toEqual([...new Set(told)].sort((a, b) => a - b))
    expect(Cable.all).toHaveLength(4)
  })

  it.each(['none', 'resume'] as const)(
    'miss and repeat nothing for a watcher that is cut off under %s, also by a link for one use',
    async (reconnect) => {
      const driver = open({ key: 'chat', agent: 'paced', reconnect })
      await driver.ready
      const { id } = driver.info ?? { id: '' }
      const { token } = await holdfast.session(id).createLink({ scopes: ['watch'], uses: 1 })
      const told = await Promise.all(
        [{}, { link: token }].map(async (by) => {
          const told: string[] = []
          const watcher = open({ id, role: 'watcher', ...by })
          watcher.on('event', ({ seq }) => told.push(String(seq)))
          watcher.on('delta', ({ text }) => told.push(text))
          await watcher.ready
          return { watcher, told }
        }),
      )
      const turn = driver.turn('one two three four')
      for (const [index, word] of words.entries()) {
        word.open()
        if (index === 3) break
        await until(() => told.every((one) => one.told.filter(isWord).length === index + 1))
        for (const cable of Cable.all.slice(1)) cable.terminate()
        for (const { watcher } of told) await stateOf(watcher, 'reconnecting')
        for (const { watcher } of told) await stateOf(watcher, 'live')
      }
      expect((await turn).state).toBe('done')
      const { seq } = await holdfast.session(id).state()
      await until(() => told.every((one) => one.told.includes(String(seq))))
      for (const { told: one } of told) {
        expect(one).toEqual([...new Set(one)])
        expect(one.filter(isWord).slice(0, 3)).toEqual(['one ', 'two ', 'three '])
      }
    },
  )

  it('let a watcher take part, by the same use of the link that it came in by', async () => {
    const session = await holdfast.resolve({ key: 'chat' })
    const { token } = await session.createLink({ scopes: ['talk'], uses: 1 })
    const page = open({ id: session.id, link: token, role: 'watcher' })
    await page.ready
    expect(page.scopes).toEqual(['watch', 'talk'])
    page.drive()
    expect(await page.turn('hello')).toMatchObject({ state: 'done', reply: { text: 'hello' } })
    expect(page.role).toBe('driver')
    cut()
    await stateOf(page, 'reconnecting')
    expect((await page.turn('again')).state).toBe('done')
    expect((await session.state()).links).toMatchObject([{ uses: 0, usedBy: [] }])
    const other = open({ id: session.id, link: token, role: 'watcher' })
    expect(await stateOf(other, 'ended')).toMatchObject({ code: 'unauthorized' })
    await expect(other.ready).rejects.toMatchObject({ code: 'unauthorized' })
  })

  it.each(['"welcome"', '"reply"', '"turn.started"', '"message.added"', '"turn.done"'])(
    'run a turn once although the connection is cut when %s arrives',
    async (type) => {
      const session = open({ key: 'chat' })
      await session.ready
      Cable.cutAt = type
      if (type === '"welcome"') cut()
      const { state, reply } = await session.turn('hello')
      expect({ state, reply }).toEqual({ state: 'done', reply: { text: 'hello' } })
      expect(Cable.cutAt).toBeNull()
      const view = await holdfast.session(session.info?.id ?? '').state()
      expect(view.turns).toBe(1)
    },
  )

  it('settle an ask by the first answer, and everybody knows', async () => {
    const answers = ['permission']
    const one = open({ key: 'chat', agent: 'asks', answers })
    const two = open({ key: 'chat', agent: 'asks', answers })
    await Promise.all([one.ready, two.ready])
    const turn = one.turn('go')
    await until(() => one.asks.length === 1 && two.asks.length === 1)
    const ask = one.asks[0]?.id ?? ''
    expect((await outcome(two.answer(ask, 'perhaps'))).error.code).toBe('invalid_answer')
    await two.answer(ask, 'allow')
    expect((await turn).reply?.text).toBe('allow')
    expect((await outcome(one.answer(ask, 'deny'))).error.code).toBe('ask_settled')
    await until(() => one.asks.length === 0 && two.asks.length === 0)
  })

  it('count an answer whose reply was lost', async () => {
    const session = open({ key: 'chat', agent: 'asks', answers: ['permission'] })
    const turn = session.turn('go')
    await until(() => session.asks.length === 1)
    Cable.cutAt = '"reply"'
    await session.answer(session.asks[0]?.id ?? '', 'deny')
    expect((await turn).reply?.text).toBe('deny')
  })

  it('show an ask that waits to whoever comes later, and none that was settled before', async () => {
    const answers = ['permission']
    const one = open({ key: 'chat', agent: 'asks', answers })
    for (let n = 0; n < 2; n += 1) {
      const turn = one.turn('go')
      await until(() => one.asks.length === 1)
      await one.answer(one.asks[0]?.id ?? '', 'allow')
      await turn
    }
    void one.turn('wait')
    await until(() => one.asks.length === 1)
    const later = open({ key: 'chat', answers })
    const shown: string[] = []
    later.on('ask', ({ id }) => shown.push(id))
    await until(() => later.seen.seq >= one.seen.seq)
    expect(shown).toEqual([one.asks[0]?.id])
  })

  it('cancel a turn, and keep what was said', async () => {
    const session = open({ key: 'chat', agent: 'paced' })
    const turn = session.turn('one two')
    words[0]?.open()
    const iterator = turn[Symbol.asyncIterator]()
    expect(await iterator.next()).toEqual({ done: false, value: 'one ' })
    await session.cancel(await turn.started)
    expect(await turn).toMatchObject({ state: 'cancelled', reply: { text: 'one ' } })
  })

  it('close a session for everybody', async () => {
    const one = open({ key: 'chat' })
    const two = open({ key: 'chat' })
    await Promise.all([one.ready, two.ready])
    await one.close()
    for (const session of [one, two]) {
      const state = await stateOf(session, 'ended')
      expect(state).toMatchObject({ code: 'session_closed', hint: 'start_new' })
    }
  })

  it('have one driver of an exclusive session, and a person decides who', async () => {
    const options = { key: 'tab', exclusive: true } as const
    const one = open(options)
    await one.ready
    const two = open(options)
    expect(await stateOf(two, 'ended')).toMatchObject({ code: 'in_use', hint: 'take_over' })
    await two.takeOver()
    expect(two.state.name).toBe('live')
    expect(await stateOf(one, 'ended')).toMatchObject({ code: 'superseded', hint: 'take_over' })
    expect((await two.turn('mine')).state).toBe('done')
  })

  it('resume the attachment of a page that was reloaded', async () => {
    const storage = new FakeStorage()
    // A page that is gone does nothing any more: its timers never run.
    const clock = { now: () => 1, after: () => () => undefined }
    const before = open({ key: 'chat' }, { storage, clock })
    await before.turn('hello')
    const kept = JSON.parse(storage.getItem('holdfast:chat') ?? '')
    cut()
    const after = open({ key: 'chat' }, { storage })
    const messages: string[] = []
    after.on('message', ({ role, text }) => messages.push(`${role}: ${text}`))
    await after.ready
    await until(() => messages.length === 2)
    expect(messages).toEqual(['user: hello', 'assistant: hello'])
    const again = JSON.parse(storage.getItem('holdfast:chat') ?? '')
    expect(again.resume.attachment).toBe(kept.resume.attachment)
    expect(again.resume.token).not.toBe(kept.resume.token)
  })

  it('end the attachment of one who leaves, at once', async () => {
    const session = open({ key: 'chat' })
    await session.ready
    const handle = holdfast.session(session.info?.id ?? '')
    expect((await handle.state()).attachments).toHaveLength(1)
    session.leave()
    await until(async () => (await handle.state()).attachments.length === 0)
    expect(session.state).toMatchObject({ name: 'ended', code: 'left' })
  })

  it('let nobody back under the policy none', async () => {
    const session = open({ key: 'tab', reconnect: 'none' })
    await session.ready
    cut()
    expect(await stateOf(session, 'ended')).toMatchObject({ code: 'connection_lost' })
    const id = session.info?.id ?? ''
    await until(async () => (await holdfast.session(id).state()).closed !== null)
    const again = open({ id })
    expect(await stateOf(again, 'ended')).toMatchObject({ code: 'session_closed' })
  })

  it('start again from the beginning if the client has seen more than there is', async () => {
    const first = open({ key: 'chat' })
    await first.ready
    const session = open({ id: first.info?.id ?? '', after: { seq: 999, delta: 0 } })
    await session.ready
    await until(() => session.seen.seq > 0)
    expect(session.seen.seq).toBeLessThan(999)
  })

  it('part when the server stops, and the client looks for it', async () => {
    const session = open({ key: 'chat' })
    await session.ready
    await server.close()
    const state = await stateOf(session, 'reconnecting')
    expect(state.giveUpAt).toBeGreaterThan(Date.now())
  })
})
