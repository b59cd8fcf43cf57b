/**
 * A feed against a plain list of events: a client that comes, goes, falls behind and comes back,
 * with presence or without, is told everything that it should be, once and in order (I4).
 */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isTold, positionAfter, type FeedItem, type Position } from './feed-item.ts'
import { Feed } from './feed.ts'
import { LIMITS } from './limits.ts'
import type { SessionEvent } from './events.ts'
import type { Store } from './store.ts'

const step = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** What happened, as a list. Deltas that a message has replaced are in `replaced`. */
class World {
  readonly log: SessionEvent[] = []
  /** The deltas of the running turn that no message has replaced. */
  open: { readonly from: number; to: number } = { from: 1, to: 0 }
  turn: string | null = null
  /** By the `seq` of a message: the last delta that it has in it. */
  readonly covers = new Map<number, number>()
  readonly feed: Feed
  readSteps = 0

  constructor(tailItemsMax: number, pageEvents: number) {
    const read = async (id: string, after: number, limit: number): Promise<unknown> => {
      for (let n = this.readSteps; n > 0; n -= 1) await step()
      const events = this.log.slice(after, after + limit)
      const stored = events.map((event) => ({ seq: event.seq, body: JSON.stringify(event) }))
      return { row: { id, state: 'open', seq: this.log.length }, events: stored }
    }
    const limits = { ...LIMITS, tailItemsMax, pageEvents }
    const store = { read } as unknown as Store
    // All followers are woken at once.
    const clock = { monotonic: () => 0, after: (_ms: number, run: () => void) => (run(), run) }
    this.feed = new Feed('s', 0, { store, limits, clock })
  }

  publish(type: string, turn: string | null = null): void {
    const seq = this.log.length + 1
    const about = turn === null ? {} : { turn }
    const event = { type, ...about, text: '', seq, at: 0 } as unknown as SessionEvent
    this.log.push(event)
    if (turn !== null && (type === 'message.added' || type === 'turn.done')) {
      this.covers.set(seq, this.open.to)
      this.open = { from: this.open.to + 1, to: this.open.to }
    }
    if (type === 'turn.started') this.open = { from: 1, to: 0 }
    this.feed.publish(event, JSON.stringify(event))
  }

  happen(kind: Happening): void {
    if (kind === 'presence') return this.publish('attachment.opened')
    if (kind === 'event') return this.publish('turn.activity', this.turn ?? 't0')
    if (kind === 'turn') {
      if (this.turn !== null) this.publish('turn.done', this.turn)
      this.turn = this.turn === null ? `t${this.log.length + 1}` : null
      if (this.turn !== null) this.publish('turn.started', this.turn)
      return
    }
    if (this.turn === null) return
    if (kind === 'message') return this.publish('message.added', this.turn)
    if (kind === 'checkpoint') return this.publish('turn.output', this.turn)
    this.open.to += 1
    this.feed.delta(this.turn, 'x')
  }
}

type Happening = 'event' | 'presence' | 'delta' | 'message' | 'checkpoint' | 'turn'

type Action =
  | { readonly do: Happening }
  | { readonly toggle: number }
  | { readonly pace: number; readonly slow: boolean }
  | { readonly steps: number }
  | { readonly readSteps: number }

/** A client that keeps its place, reads at its own pace, and checks what it is told. */
class Reader {
  readonly #world: World
  readonly #presence: boolean
  readonly problems: string[] = []
  #position: Position = { seq: 0, delta: 0 }
  /** The last delta of the running turn that it has seen, or has in a message. */
  #has = 0
  #stop: AbortController | null = null
  #done: Promise<void> = Promise.resolve()
  #slow = false
  #read: () => void = () => undefined

  constructor(world: World, presence: boolean) {
    this.#world = world
    this.#presence = presence
  }

  toggle(): void {
    if (this.#stop === null) this.come()
    else this.#go()
  }

  come(): void {
    if (this.#stop !== null) return
    const stop = new AbortController()
    this.#stop = stop
    const before = this.#done
    this.#done = (async () => {
      await before
      await this.#follow(stop.signal)
    })()
  }

  setSlow(slow: boolean): void {
    this.#slow = slow
    this.#read()
  }

  #go(): void {
    this.#stop?.abort()
    this.#stop = null
    this.#read()
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { feed } = this.#world
    const presence = this.#presence
    for await (const items of feed.follow(this.#position, signal, { presence })) {
      if (signal.aborted) return
      for (const item of items) this.#told(item)
      if (this.#slow) await new Promise<void>((resolve) => (this.#read = resolve))
      if (signal.aborted) return
    }
  }

  #told(item: FeedItem): void {
    const { seq } = this.#position
    if (item.delta > 0) {
      if (item.delta !== this.#has + 1) this.problems.push(`delta ${item.delta} at ${this.#has}`)
      this.#has = item.delta
      // A client knows the place of a delta only by the event before it.
      this.#position = { seq, delta: item.delta }
      return
    }
    const next = this.#next(seq)
    if (item.seq !== next) this.problems.push(`event ${item.seq} instead of ${next} after ${seq}`)
    if (item.type === 'turn.started') this.#has = 0
    this.#has = Math.max(this.#has, this.#world.covers.get(item.seq) ?? 0)
    this.#position = positionAfter(this.#position, item)
  }

  #next(seq: number): number | undefined {
    const { log } = this.#world
    return log.slice(seq).find(({ type }) => isTold(type, this.#presence))?.seq
  }

  /** Reads on to the end, and leaves. */
  async finish(): Promise<void> {
    this.setSlow(false)
    this.come()
    for (let n = 0; n < 400 && !this.#isThere; n += 1) await step()
    if (!this.#isThere) this.problems.push(`stays at ${this.#position.seq}.${this.#has}`)
    this.#go()
    await this.#done
  }

  get #isThere(): boolean {
    const isRunning = this.#world.turn !== null
    return (
      this.#next(this.#position.seq) === undefined &&
      (!isRunning || this.#has === this.#world.open.to)
    )
  }
}

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constantFrom<Happening>('event', 'presence', 'delta', 'checkpoint'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom<Happening>('message', 'turn') }) },
  { weight: 3, arbitrary: fc.record({ toggle: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ pace: fc.nat(3), slow: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ steps: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ readSteps: fc.nat(3) }) },
)

describe('a feed, against a plain list', () => {
  it('tells every client everything once and in order while clients come and go', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(action, { minLength: 20, maxLength: 150, size: 'max' }),
        fc.integer({ min: 2, max: 9 }),
        fc.integer({ min: 1, max: 5 }),
        async (actions, tailItemsMax, pageEvents) => {
          const world = new World(tailItemsMax, pageEvents)
          const readers = [true, false, true, false].map((presence) => new Reader(world, presence))
          for (const one of actions) {
            if ('do' in one) world.happen(one.do)
            else if ('toggle' in one) readers[one.toggle]?.toggle()
            else if ('pace' in one) readers[one.pace]?.setSlow(one.slow)
            else if ('readSteps' in one) world.readSteps = one.readSteps
            else for (let n = one.steps; n > 0; n -= 1) await step()
          }
          for (const reader of readers) await reader.finish()
          expect(readers.flatMap(({ problems }) => problems)).toEqual([])
          expect(world.feed.followers).toBe(0)
        },
      ),
      { numRuns: 100 },
    )
  })
})
