import { describe, expect, it } from 'vitest'
import type { FeedItem, Position } from './feed-item.ts'
import { Feed } from './feed.ts'
import { LIMITS } from './limits.ts'
import type { SessionEvent } from './events.ts'
import type { Store } from './store.ts'

type FeedClock = ConstructorParameters<typeof Feed>[2]['clock']

/** All followers are woken at once. */
const AT_ONCE: FeedClock = { monotonic: () => 0, after: (_ms, run) => (run(), run) }

/** A feed over a log that the test writes; the store serves what was published. */
function logged({ tailItemsMax = 4, pageEvents = 2, clock = AT_ONCE } = {}) {
  const log: SessionEvent[] = []
  let reads = 0
  const store = {
    read: async (id: string, after: number, limit: number) => {
      reads += 1
      const events = log.slice(after, after + limit)
      const stored = events.map((event) => ({ seq: event.seq, body: JSON.stringify(event) }))
      return { row: { id, state: 'open', seq: log.length }, events: stored }
    },
  } as unknown as Store
  const feed = new Feed('s', 0, { store, limits: { ...LIMITS, tailItemsMax, pageEvents }, clock })
  const publish = (type: string, turn = 't1'): void => {
    const event = { type, turn, text: '', seq: log.length + 1, at: 0 } as unknown as SessionEvent
    log.push(event)
    feed.publish(event, JSON.stringify(event))
  }
  return { feed, publish, reads: () => reads }
}

/** A clock that the test moves. Telling a crowd takes it 10 ms. */
class Hand {
  #now = 0
  #timers: { readonly at: number; readonly run: () => void }[] = []

  monotonic(): number {
    return this.#now
  }

  after(ms: number, run: () => void): () => void {
    this.#timers.push({ at: this.#now + ms, run })
    return () => undefined
  }

  /** Runs what is due now, and lets the followers that were woken continue. */
  async go(ms: number): Promise<void> {
    this.#now += ms
    const due = this.#timers.filter(({ at }) => at <= this.#now)
    this.#timers = this.#timers.filter(({ at }) => at > this.#now)
    for (const { run } of due) run()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** Reads until `count` items came; returns them as `seq` or `seq.delta`. */
async function take(feed: Feed, from: Position, count: number): Promise<string[]> {
  const seen: string[] = []
  for await (const items of feed.follow(from)) {
    seen.push(...items.map(name))
    if (seen.length >= count) break
  }
  return seen
}

const name = ({ seq, delta }: FeedItem): string => (delta === 0 ? `${seq}` : `${seq}.${delta}`)
const start = { seq: 0, delta: 0 }

describe('a feed', () => {
  it('gives a late follower the log and then the whole output of the running turn', async () => {
    const { feed, publish } = logged()
    publish('turn.started')
    feed.delta('t1', 'a')
    publish('ask.opened')
    feed.delta('t1', 'b')
    expect(await take(feed, start, 4)).toEqual(['1', '2', '2.1', '2.2'])
  })

  it('goes on after exactly what a follower has seen, deltas included', async () => {
    const { feed, publish } = logged()
    publish('turn.started')
    feed.delta('t1', 'a')
    feed.delta('t1', 'b')
    publish('ask.opened')
    feed.delta('t1', 'c')
    expect(await take(feed, { seq: 1, delta: 1 }, 3)).toEqual(['2', '2.2', '2.3'])
  })

  it('counts deltas anew with every turn', async () => {
    const { feed, publish } = logged()
    publish('turn.started', 't1')
    feed.delta('t1', 'a')
    feed.delta('t1', 'b')
    publish('message.added', 't1')
    publish('turn.done', 't1')
    publish('turn.started', 't4')
    feed.delta('t4', 'c')
    expect(await take(feed, { seq: 1, delta: 2 }, 4)).toEqual(['2', '3', '4', '4.1'])
  })

  it('neither skips nor repeats for a follower that falls behind the tail', async () => {
    const { feed, publish } = logged({ tailItemsMax: 4, pageEvents: 2 })
    const seen: string[] = []
    let bursts = 5
    publish('ask.opened')
    for await (const items of feed.follow(start)) {
      seen.push(...items.map(name))
      if (seen.length >= 36) break
      for (let n = 0; bursts > 0 && n < 7; n += 1) publish('ask.opened')
      bursts -= 1
    }
    expect(seen).toEqual(Array.from({ length: 36 }, (_, index) => `${index + 1}`))
  })

  it('keeps the deltas of a turn that does much else, but not all that it does', async () => {
    const { feed, publish, reads } = logged({ tailItemsMax: 4, pageEvents: 64 })
    const stop = new AbortController()
    const seen: string[] = []
    const early = (async () => {
      for await (const items of feed.follow(start, stop.signal)) seen.push(...items.map(name))
    })()
    publish('turn.started')
    feed.delta('t1', 'a')
    for (let n = 0; n < 40; n += 1) {
      publish('turn.activity')
      await new Promise((resolve) => setImmediate(resolve))
    }
    const events = Array.from({ length: 41 }, (_, index) => `${index + 1}`)
    expect(seen).toEqual(['1', '1.1', ...events.slice(1)])
    const before = reads()
    const late = await take(feed, { seq: 1, delta: 0 }, 41)
    expect(late).toEqual([...events.slice(1), '41.1'])
    expect(reads()).toBe(before + 1)
    stop.abort()
    await early
  })

  it('reads nothing for one that comes back if nothing happened that it is told', async () => {
    const { feed, publish, reads } = logged({ tailItemsMax: 100 })
    const follow = async (from: Position, count: number): Promise<string[]> => {
      const seen: string[] = []
      for await (const items of feed.follow(from, undefined, { presence: false })) {
        seen.push(...items.map(name))
        if (seen.length >= count) break
      }
      return seen
    }
    publish('turn.started')
    feed.delta('t1', 'a')
    publish('attachment.opened')
    expect(await follow(start, 2)).toEqual(['1', '2.1'])
    const before = reads()
    // All clients disconnect, so no client is notified, and then they come back.
    publish('attachment.detached')
    feed.delta('t1', 'b')
    publish('attachment.resumed')
    expect(await follow({ seq: 1, delta: 1 }, 1)).toEqual(['3.2'])
    expect(reads()).toBe(before)
    publish('ask.opened')
    expect(await follow({ seq: 1, delta: 2 }, 1)).toEqual(['5'])
  })

  it('ends its followers when the session ends, and fails them when the hold is lost', async () => {
    const ended = logged()
    ended.publish('session.closed')
    ended.feed.end()
    const seen: string[] = []
    for await (const items of ended.feed.follow(start)) seen.push(...items.map(name))
    expect(seen).toEqual(['1'])
    const lost = logged()
    lost.feed.end(new Error('moved'))
    await expect(take(lost.feed, start, 1)).rejects.toThrow('moved')
  })

  it('tells a crowd together, and everybody once, what happened while it rested', async () => {
    const clock = new Hand()
    const { feed, publish } = logged({ tailItemsMax: 100, clock })
    const stop = new AbortController()
    const heard = Array.from({ length: 64 }, (): string[] => [])
    const crowd = heard.map(async (batches) => {
      for await (const items of feed.follow(start, stop.signal)) {
        batches.push(items.map(name).join(' '))
      }
    })
    await clock.go(0)
    publish('ask.opened')
    await clock.go(0)
    expect(heard.every((batches) => batches.join() === '1')).toBe(true)
    await clock.go(10)
    publish('ask.opened')
    publish('ask.opened')
    await clock.go(49)
    publish('ask.opened')
    expect(heard.every((batches) => batches.join() === '1')).toBe(true)
    await clock.go(1)
    expect(heard.every((batches) => batches.join() === '1,2 3 4')).toBe(true)
    stop.abort()
    await Promise.all(crowd)
  })

  it('lets go of a follower whose signal is aborted while it waits', async () => {
    const { feed } = logged()
    const abort = new AbortController()
    const done = (async () => {
      for await (const items of feed.follow(start, abort.signal)) expect(items).toEqual([])
    })()
    abort.abort()
    await done
    expect(feed.followers).toBe(0)
  })
})
