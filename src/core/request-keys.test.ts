import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { LIMITS } from './limits.ts'
import { RequestKeys } from './request-keys.ts'
import { createSession } from './session.ts'
import type { KeyedTurn, KeyQuery, Store } from './store.ts'
import type { Clock } from './clock.ts'
import { MemoryStore } from '../stores/memory.ts'

const DAY_MS = 86_400_000

const NEW = createSession({
  ...{ type: 'session.created', id: 's', key: null, agent: 'a', internal: false, labels: {} },
  ...{ reconnect: 'reopen', exclusive: false, graceMs: 0, ttlMs: null, seq: 1, at: 0 },
})

class World {
  now = 10 * DAY_MS
  lookups = 0
  readonly store = new MemoryStore()
  readonly #seen = new Map<string, number>()
  #seq = 1

  async create(): Promise<void> {
    const plain = {
      principal: 'default',
      explicit: true,
      key: null,
      agent: 'a',
      internal: false,
      labels: {},
    }
    await this.store.reserve({ ...plain, id: 's', node: 'n', at: 0, expiresAt: null, body: '{}' })
  }

  /** `delay` is awaited before and after each look. */
  keys(isNew = false, delay: () => Promise<void> = async () => undefined): RequestKeys {
    const store = {
      findKeys: async (session: string, query: KeyQuery) => {
        this.lookups += 1
        await delay()
        const found = await this.store.findKeys(session, query)
        await delay()
        return found
      },
    } as unknown as Store
    const clock = { now: () => this.now } as Clock
    return new RequestKeys('s', { store, clock, limits: LIMITS }, isNew)
  }

  /** As a session does: admitted if its key has no turn, over at once, and then told. */
  async admit(keys: RequestKeys, key: string): Promise<string> {
    const request = { key, digest: 'd' }
    return keys.pass(request, async () => {
      const known = keys.turnOf(request, NEW)
      if (known !== null) return known
      const seq = (this.#seq += 1)
      const keyed: KeyedTurn = { key, digest: 'd', turn: `t${seq}`, at: this.now }
      this.#seen.set(key, (this.#seen.get(key) ?? 0) + 1)
      const added = { added: [keyed], since: this.now - DAY_MS, max: 10_000 }
      const flags = { snapshot: null, at: 1, closed: false, pending: false, expiresAt: null }
      const append = { session: 's', epoch: 1, after: seq - 1, events: ['{}'], keys: added }
      keys.add([keyed])
      await this.store.append([{ ...append, ...flags }])
      return keyed.turn
    })
  }

  admissions(key: string): number {
    return this.#seen.get(key) ?? 0
  }
}

async function world(): Promise<World> {
  const made = new World()
  await made.create()
  return made
}

describe('request keys', () => {
  it('that begin alike are found after a restart, the newest first', async () => {
    const it = await world()
    const before = it.keys(true)
    for (const key of ['a:1', 'b:1', 'a:2', 'a:3']) {
      it.now += 1
      await it.admit(before, key)
    }
    const keys = it.keys()
    expect((await keys.alike('a:')).map(({ key }) => key)).toEqual(['a:3', 'a:2', 'a:1'])
    it.now += DAY_MS - 1
    expect((await keys.alike('a:')).map(({ key }) => key)).toEqual(['a:3', 'a:2'])
  })

  it('that begin alike are found however many came since, and were asked for since', async () => {
    const it = await world()
    const before = it.keys(true)
    await it.admit(before, 'a:1')
    for (let n = 0; n < 600; n += 1) await it.admit(before, `b:${n}`)
    await it.admit(before, 'a:2')
    const keys = it.keys()
    const alike = async () => (await keys.alike('a:')).map(({ key }) => key)
    expect(await alike()).toEqual(['a:2', 'a:1'])
    for (let n = 0; n < 300; n += 1) await it.admit(keys, `b:${n}`)
    expect(await alike()).toEqual(['a:2', 'a:1'])
  })

  it('are known after hundreds of further turns, and after a day no more', async () => {
    const it = await world()
    const keys = it.keys(true)
    const first = await it.admit(keys, 'first')
    for (let n = 0; n < 300; n += 1) await it.admit(keys, `k${n}`)
    expect(await it.admit(keys, 'first')).toBe(first)
    expect(await it.admit(it.keys(), 'first')).toBe(first)
    it.now += DAY_MS
    expect(await it.admit(it.keys(), 'first')).toBe(first)
    it.now += 1
    expect(await it.admit(it.keys(), 'first')).not.toBe(first)
    expect(it.admissions('first')).toBe(2)
  })

  it('cost one look at most, as long as they are few', async () => {
    const it = await world()
    const made = it.keys(true)
    for (let n = 0; n < 200; n += 1) await it.admit(made, `k${n}`)
    expect(it.lookups).toBe(0)
    const loaded = it.keys()
    for (let n = 0; n < 250; n += 1) await it.admit(loaded, `k${n}`)
    expect(it.lookups).toBe(1)
  })

  it('let requests without a key enter in the order in which they came', async () => {
    const it = await world()
    const keys = it.keys()
    const entered: string[] = []
    const enter = (name: string) => async () => void entered.push(name)
    await Promise.all([
      keys.pass({ key: 'a', digest: 'd' }, enter('a')),
      keys.pass(null, enter('none')),
      keys.pass({ key: 'b', digest: 'd' }, enter('b')),
    ])
    expect(entered).toEqual(['a', 'none', 'b'])
  })

  it.each([null, new Error('the store is away')])(
    'say that a request is on its way until a look has ended (%s)',
    async (failure) => {
      const it = await world()
      let end = (): void => undefined
      const look = new Promise<void>((resolve, reject) => {
        end = () => (failure === null ? resolve() : reject(failure))
      })
      const keys = it.keys(false, () => look)
      expect(keys.isEntering).toBe(false)
      const asked = it.admit(keys, 'k').catch((error: unknown) => error)
      expect(keys.isEntering).toBe(true)
      end()
      await asked
      expect(keys.isEntering).toBe(false)
    },
  )

  it('are those of turns that wait or run too, however old (I11)', async () => {
    const keys = (await world()).keys()
    const turn = { input: 'a', collect: false, expiresAt: null, by: null, queuedAt: null }
    const waiting = { ...turn, id: 't2', keys: [{ key: 'k', digest: 'd' }] }
    for (const session of [
      { ...NEW, running: waiting },
      { ...NEW, queued: [waiting] },
    ]) {
      expect(keys.turnOf({ key: 'k', digest: 'd' }, session)).toBe('t2')
      expect(keys.turnOf({ key: 'other', digest: 'd' }, session)).toBeNull()
      expect(() => keys.turnOf({ key: 'k', digest: 'x' }, session)).toThrow('another body')
    }
  })

  it('refuse another body', async () => {
    const it = await world()
    await it.admit(it.keys(true), 'k')
    const keys = it.keys()
    const request = { key: 'k', digest: 'other' }
    const asked = keys.pass(request, async () => keys.turnOf(request, NEW))
    await expect(asked).rejects.toMatchObject({ code: 'idempotency_mismatch' })
  })

  it('have one turn each, whatever comes at once and however late a look is answered', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 2, maxLength: 6 }),
        fc.boolean(),
        async (scheduler, names, isKnown) => {
          const it = await world()
          if (isKnown) await it.admit(it.keys(true), 'k0')
          const keys = it.keys(false, () => scheduler.schedule(Promise.resolve()))
          const asked = names.map((name) =>
            scheduler.schedule(Promise.resolve()).then(() => it.admit(keys, `k${name}`)),
          )
          await scheduler.waitFor(Promise.all(asked))
          const turns = await Promise.all(asked)
          names.forEach((name, index) => {
            expect(it.admissions(`k${name}`)).toBe(1)
            expect(turns[index]).toBe(turns[names.indexOf(name)])
          })
        },
      ),
      { numRuns: 300 },
    )
  })
})
