import { setImmediate as eventLoopTurn } from 'node:timers/promises'
import { afterEach, expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { Holdfast } from './holdfast.ts'
import type { Runner } from './runner.ts'
import type { KeyQuery } from './store.ts'

const holds: Holdfast[] = []
afterEach(async () => {
  await Promise.all(holds.splice(0).map(({ authority }) => authority.stop()))
})

async function opened(runner: Runner) {
  const made = make(runner)
  await made.hold.authority.start()
  return made
}

/** A Holdfast whose store looks for keys only when it is let, and which keeps no idle session. */
function make(runner: Runner, store = new MemoryStore(), node = 'a') {
  let time = 1_000
  let ids = 0
  const findKeys = store.findKeys.bind(store)
  let answer = (): void => undefined
  const look = new Promise<void>((resolve) => (answer = resolve))
  store.findKeys = async (session: string, query: KeyQuery) => {
    await look
    return findKeys(session, query)
  }
  const hold = new Holdfast({
    store,
    runners: { agent: runner },
    clock: {
      now: () => time,
      monotonic: () => time,
      after: (ms, run) => {
        const timer = setTimeout(run, ms)
        return () => clearTimeout(timer)
      },
    },
    entropy: { id: () => `id${(ids += 1)}` },
    digest: String,
    node,
    limits: { idleSessionsMax: 0 },
  })
  holds.push(hold)
  const trimLater = (): void => {
    time += 1_000
    hold.authority.trim()
  }
  return { hold, store, trimLater, answer }
}

it('is not let go while a request waits for a look for its key', async () => {
  const { hold, trimLater, answer } = await opened({
    async *run() {
      yield { type: 'delta', text: 'here' }
      return undefined
    },
  })
  const session = await hold.resolve()
  trimLater()
  expect(hold.authority.heldCount).toBe(0)
  const asked = session.submit('hi', { idempotencyKey: 'k' })
  await expect.poll(() => hold.authority.heldCount).toBe(1)
  await new Promise((resolve) => setTimeout(resolve, 5))
  trimLater()
  answer()
  expect(await asked).toMatchObject({ id: 't2' })
  await hold.authority.stop()
})

const ENDLESS: Runner = {
  async *run() {
    yield { type: 'delta', text: 'working' }
    return new Promise(() => undefined)
  },
}

/** From now on the store appends when it is let. */
function holdAppends(store: MemoryStore) {
  let letAppend = (): void => undefined
  const allowed = new Promise<void>((resolve) => (letAppend = resolve))
  const append = store.append.bind(store)
  const appending = new Promise<void>((begun) => {
    store.append = async (appends) => {
      begun()
      await allowed
      return append(appends)
    }
  })
  return { appending, letAppend }
}

it('keeps the order of requests that arrive while it is loaded', async () => {
  const { hold: lost, store } = await opened(ENDLESS)
  const { id } = await lost.resolve()
  await lost.session(id).submit('running when its node was lost')
  const claim = store.claim.bind(store)
  let letClaim = (): void => undefined
  const mayClaim = new Promise<void>((resolve) => (letClaim = resolve))
  const claiming = new Promise<void>((begun) => {
    store.claim = async (...asked) => {
      begun()
      await mayClaim
      return claim(...asked)
    }
  })
  const { appending, letAppend } = holdAppends(store)
  const { hold } = make(ENDLESS, store)
  const started = hold.authority.start()
  await claiming
  const first = hold.session(id).submit('first')
  await eventLoopTurn()
  letClaim()
  await appending
  const second = hold.session(id).submit('second')
  await eventLoopTurn()
  letAppend()
  await Promise.all([started, first, second])
  const { running, queued } = await hold.session(id).state()
  expect([running, ...queued].map((turn) => turn?.input)).toEqual(['first', 'second'])
})

it('attaches no client that went away before its attachment is decided', async () => {
  const { hold, store } = await opened(ENDLESS)
  const session = await hold.resolve()
  const { appending, letAppend } = holdAppends(store)
  const [staying, leaving] = [new AbortController(), new AbortController()]
  const created = session.createLink({ scopes: ['watch'] })
  await appending
  const stays = session.attach({ signal: staying.signal })
  const leaves = session.attach({ signal: leaving.signal }).catch((error: unknown) => error)
  await eventLoopTurn()
  leaving.abort()
  letAppend()
  await created
  expect(await leaves).toMatchObject({ code: 'cancelled' })
  const { attachments } = await session.state()
  expect(attachments.map(({ id }) => id)).toEqual([(await stays).id])
})

it('is loaded by the next request if the store has failed at the first', async () => {
  const { hold: lost, store } = await opened(ENDLESS)
  const { id } = await lost.resolve()
  await lost.session(id).submit('running when its node was lost')
  const { hold } = make(ENDLESS, store)
  const read = store.read.bind(store)
  store.read = () => Promise.reject(new Error('the driver has failed'))
  await hold.authority.start()
  store.read = read
  expect(await hold.session(id).submit('next')).toMatchObject({ state: 'running' })
})

it('is found at the node that could read it, by one that could not', async () => {
  const { hold: first, store } = await opened(ENDLESS)
  const { id } = await first.resolve()
  await first.authority.stop()
  const older = make(ENDLESS, store).hold
  const newer = make(ENDLESS, store, 'b').hold
  await Promise.all([older, newer].map(({ authority }) => authority.start()))
  const claim = store.claim.bind(store)
  store.claim = async (session, node) => {
    const claimed = await claim(session, node)
    if (claimed.type !== 'claimed' || node !== 'a') return claimed
    return { ...claimed, tail: [{ seq: 1, body: '{"type":"of a newer version","seq":1}' }] }
  }
  const submit = () => older.session(id).submit('hi')
  await expect(submit()).rejects.toMatchObject({ code: 'session_unreadable' })
  await expect(submit()).rejects.toMatchObject({ code: 'session_unreadable' })
  await newer.session(id).submit('hi')
  await expect(submit()).rejects.toMatchObject({ code: 'not_owner', details: { node: 'b' } })
})

it('is let go again if it was loaded while its node stops', async () => {
  let letClose = (): void => undefined
  const mayClose = new Promise<void>((resolve) => (letClose = resolve))
  const { hold } = await opened({ ...ENDLESS, close: () => mayClose })
  const client = await (await hold.resolve({ reconnect: 'resume' })).attach()
  const stopped = hold.close()
  await expect.poll(() => hold.authority.heldCount).toBe(0)
  await client.lose()
  expect(hold.authority.heldCount).toBe(1)
  letClose()
  await stopped
  expect(hold.authority.heldCount).toBe(0)
})

it('serves requests while its id is being reserved, whatever the store answers', async () => {
  const { hold, store } = await opened(ENDLESS)
  const { id } = await hold.resolve({ id: 'mine', reconnect: 'resume' })
  const client = await hold.session(id).attach()
  let fail = (): void => undefined
  const reserving = new Promise<void>((begun) => {
    store.reserve = () => {
      begun()
      return new Promise((_, reject) => (fail = () => reject(new Error('no way to the store'))))
    }
  })
  const other = hold.resolve({ id: 'mine', key: 'another' })
  await reserving
  await client.lose()
  expect((await hold.session(id).state()).attachments).toMatchObject([{ state: 'detached' }])
  fail()
  await expect(other).rejects.toThrow('no way to the store')
})

it('is given up by a node that finds a turn of another owner under a key', async () => {
  const first = await opened(ENDLESS)
  const { id } = await first.hold.resolve({ key: 'k' })
  first.answer()
  await first.store.beat('a', Number.MIN_VALUE)
  const { hold: owner, answer } = make(ENDLESS, first.store, 'b')
  answer()
  await owner.authority.start()
  const request = { idempotencyKey: 'retried' }
  const { id: turn } = await owner.session(id).submit('hi', request)
  const stale = first.hold.session(id)
  await expect(stale.finished(turn)).rejects.toMatchObject({ code: 'stale_epoch' })
  await expect(stale.turn('hi', request)).rejects.toMatchObject({ code: 'not_owner' })
})
