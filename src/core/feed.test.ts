import { describe, expect, it } from 'vitest'
import { Feed, type FeedItem, type Position } from './feed.ts'
import { LIMITS } from './limits.ts'
import type { SessionEvent } from './session.ts'
import type { Store } from './store.ts'

/** A feed over a log that the test writes; the store serves what was published. */
function logged({ tailItemsMax = 4, pageEvents = 2 } = {}) {
  const log: SessionEvent[] = []
  const store = {
    read: async (id: string, after: number, limit: number) => ({
      row: { id, state: 'open', seq: log.length },
      events: log
        .slice(after, after + limit)
        .map((event) => ({ seq: event.seq, body: JSON.stringify(event) })),
    }),
  } as unknown as Store
  const feed = new Feed('s', 0, store, { ...LIMITS, tailItemsMax, pageEvents })
  const publish = (type: string, turn = 't1'): void => {
    const event = { type, turn, text: '', seq: log.length + 1, at: 0 } as unknown as SessionEvent
    log.push(event)
    feed.publish(event, JSON.stringify(event))
  }
  return { feed, publish }
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
