/**
 * The store as it looks over a network: every call takes its time, answers overtake each other, a
 * call fails before it is applied, or is applied and its answer lost or late. One shared
 * `MemoryStore` stands behind; a second, simpler set of books is kept beside it, by which it is
 * judged.
 */
import type { Append, Store } from '../../src/core/index.ts'
import { isTerminal } from '../../src/core/turns.ts'
import type { History } from './history.ts'
import type { Modules } from './modules.ts'
import type { Process } from './process.ts'
import type { Random } from './random.ts'
import type { Timeline } from './timeline.ts'

export type Weather = {
  readonly failBefore: number
  readonly loseReply: number
  readonly lateReply: number
  readonly slow: number
  /** The caller is told that it failed, and then it is applied. */
  readonly ghost: number
  /** A machine stands still just when it started a turn, or fails just when a call was applied. */
  readonly freezeAfter: number
  readonly crashAfter: number
}

export const FINE: Weather = {
  failBefore: 0,
  loseReply: 0,
  lateReply: 0,
  slow: 0,
  ghost: 0,
  freezeAfter: 0,
  crashAfter: 0,
}

/** Crash whoever makes this call of the world, before or after it is applied. */
export type CrashPoint = { readonly call: number; readonly when: 'before' | 'after' }

type CallFacts = {
  readonly what: string
  readonly session: string
  /** It starts a turn. */
  readonly starts?: boolean
}

/** Enters in the books what the store did. */
type Note<Result> = (result: Result, call: number) => void

type Books = {
  epoch: number
  seq: number
  closed: boolean
  /** Turns that were admitted and are not over. */
  readonly turns: Set<string>
}

export class SharedStore {
  weather: Weather = FINE
  /** Nodes that do not reach the store at all. */
  readonly cutOff = new Set<string>()
  calls = 0
  /** When the last answer of a call that was made in bad weather arrives. */
  lateUntil = 0
  /** What the store should have, by session. */
  readonly books = new Map<string, Books>()
  readonly inner: Store
  readonly #modules: Modules
  readonly #timeline: Timeline
  readonly #random: Random
  readonly #history: History
  readonly #crashPoint: CrashPoint | null
  readonly #crash: (process: Process) => void
  readonly #freeze: (process: Process) => void

  constructor(options: {
    modules: Modules
    timeline: Timeline
    random: Random
    history: History
    crashPoint: CrashPoint | null
    crash: (process: Process) => void
    freeze: (process: Process) => void
  }) {
    this.#modules = options.modules
    this.#timeline = options.timeline
    this.#random = options.random
    this.#history = options.history
    this.#crashPoint = options.crashPoint
    this.#crash = options.crash
    this.#freeze = options.freeze
    const monotonic = (): number => 5_000_000 + options.timeline.now
    this.inner = new options.modules.MemoryStore({ clock: { monotonic } })
  }

  /** The store as this process reaches it. */
  connect(process: Process): Store {
    const { inner } = this
    const call = <Result>(facts: CallFacts, apply: () => Promise<Result>, note?: Note<Result>) =>
      this.#call(process, facts, apply, note ?? (() => undefined))
    return {
      reserve: (reservation) =>
        call(
          { what: 'reserve', session: reservation.id },
          () => inner.reserve(reservation),
          (reserved, number) => {
            if (reserved.type === 'created') this.#noteCreated(reservation, reserved.epoch, number)
          },
        ),
      claim: (session, node) =>
        call(
          { what: 'claim', session },
          () => inner.claim(session, node),
          (claim, number) => {
            if (claim.type === 'claimed') this.#noteClaimed(session, node, claim.epoch, number)
          },
        ),
      release: (session, epoch) =>
        call({ what: 'release', session }, () => inner.release(session, epoch)),
      append: (appends) =>
        call(
          appendFacts(appends),
          () => inner.append(appends),
          (outcomes, number) => {
            appends.forEach((append, index) => {
              if (outcomes[index] === 'appended') this.#noteAppended(append, process.name, number)
            })
          },
        ),
      findKeys: (session, query) =>
        call({ what: 'findKeys', session }, () => inner.findKeys(session, query)),
      read: (session, ...given) =>
        call({ what: 'read', session }, () => inner.read(session, ...given)),
      list: (query) => call({ what: 'list', session: '' }, () => inner.list(query)),
      listAsks: (query) => call({ what: 'list', session: '' }, () => inner.listAsks(query)),
      usage: (principal, quota, most) =>
        call({ what: 'usage', session: '' }, () => inner.usage(principal, quota, most)),
      putBlobs: (session, ...given) =>
        call({ what: 'putBlobs', session }, () => inner.putBlobs(session, ...given)),
      dropBlobs: (session, ...given) =>
        call({ what: 'dropBlobs', session }, () => inner.dropBlobs(session, ...given)),
      readBlob: (session, digest) =>
        call({ what: 'readBlob', session }, () => inner.readBlob(session, digest)),
      beat: (node, leaseMs) =>
        call(
          { what: 'beat', session: '' },
          () => inner.beat(node, leaseMs),
          () => {
            const untilMs = this.#timeline.now + leaseMs
            this.#history.record({ type: 'store.leased', node, untilMs })
          },
        ),
      erase: (session) =>
        call(
          { what: 'erase', session },
          () => inner.erase(session),
          (erased) => {
            if (erased) this.#history.record({ type: 'store.erased', session })
          },
        ),
      changes: (after, limit) =>
        call({ what: 'changes', session: '' }, () => inner.changes(after, limit)),
      // One node's end is not the end of the store.
      close: async () => undefined,
    }
  }

  #call<Result>(
    process: Process,
    { what, session, starts = false }: CallFacts,
    apply: () => Promise<Result>,
    note: Note<Result>,
  ): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (process.state === 'dead') return
      this.calls += 1
      const call = this.calls
      const fate = this.#fate(process, starts)
      const answeredAt = this.#timeline.now + fate.sendMs + fate.replyMs
      if (this.weather !== FINE) this.lateUntil = Math.max(this.lateUntil, answeredAt)
      if (fate.crash === 'before') return this.#crash(process)
      this.#history.record({ type: 'store.sent', call, node: process.name, what, session })
      const reply = (failed: boolean, tell: () => void): void =>
        this.#reply(process, fate.replyMs, { call, failed }, tell)
      const fail = (): void => reply(true, () => reject(this.#failure()))
      if (fate.isGhost) fail()
      this.#timeline.after(fate.sendMs, () => {
        if (fate.fails) return fail()
        apply().then(
          (result) => {
            note(result, call)
            if (fate.crash === 'after') return this.#crash(process)
            if (fate.freezes) this.#freeze(process)
            if (fate.loses) return fail()
            if (!fate.isGhost) reply(false, () => resolve(result))
          },
          (error: Error) => reply(true, () => reject(error)),
        )
      })
    })
  }

  #fate(process: Process, starts: boolean) {
    const random = this.#random
    const { failBefore, loseReply, ghost, crashAfter, freezeAfter } = this.weather
    const isCutOff = this.cutOff.has(process.name)
    const isGhost = random.chance(ghost)
    const planned = this.#crashPoint?.call === this.calls ? this.#crashPoint.when : null
    return {
      crash: planned ?? (random.chance(crashAfter) ? 'after' : null),
      freezes: starts && random.chance(freezeAfter),
      fails: isCutOff || (!isGhost && random.chance(failBefore)),
      loses: !isGhost && random.chance(loseReply),
      isGhost: isGhost && !isCutOff,
      sendMs: isGhost ? random.between(300, 4_000) : this.#delayMs(),
      replyMs: isCutOff ? random.between(10, 3_000) : this.#replyMs(),
    }
  }

  #reply(
    process: Process,
    ms: number,
    facts: { readonly call: number; readonly failed: boolean },
    tell: () => void,
  ): void {
    this.#timeline.after(ms, () =>
      process.deliver('message', () => {
        this.#history.record({ type: 'store.replied', node: process.name, ...facts })
        tell()
      }),
    )
  }

  /** The store loses a node's lease: others may take its sessions while it believes to own them. */
  forget(node: string): void {
    // It has ended, as a real store sees it: the node has not given it up.
    void this.inner.beat(node, Number.MIN_VALUE)
    this.#history.record({ type: 'store.forgot', node })
  }

  #replyMs(): number {
    const isLate = this.#random.chance(this.weather.lateReply)
    return isLate ? this.#random.between(9_000, 25_000) : this.#delayMs()
  }

  #delayMs(): number {
    const random = this.#random
    return random.chance(this.weather.slow) ? random.between(50, 1_500) : random.between(1, 10)
  }

  /** Drivers throw their own errors too. */
  #failure(): Error {
    return this.#random.chance(0.3)
      ? new Error('the connection was reset')
      : new this.#modules.core.HoldfastError('store_unavailable', 'the store does not answer')
  }

  #noteCreated(
    { id, key, internal, node, body }: Parameters<Store['reserve']>[0],
    epoch: number,
    call: number,
  ): void {
    this.books.set(id, { epoch, seq: 1, closed: false, turns: new Set() })
    this.#history.logs.set(id, { events: [{ seq: 1, body }], snapshots: [] })
    this.#history.record({ type: 'store.created', call, node, session: id, key, internal, epoch })
  }

  #noteClaimed(session: string, node: string, epoch: number | null, call: number): void {
    const books = this.books.get(session)
    if (epoch === null || books === undefined) return
    const lastEpoch = books.epoch
    books.epoch = epoch
    this.#history.record({ type: 'store.claimed', call, node, session, epoch, lastEpoch })
  }

  #noteAppended(append: Append, node: string, call: number): void {
    const { session, epoch, after, events, snapshot, closed } = append
    const books = this.books.get(session)
    if (books === undefined) throw new Error(`an append to ${session}, which was never created`)
    const latest = { epoch: books.epoch, seq: books.seq, closed: books.closed }
    const count = events.length
    const facts = { call, node, session, epoch, after, count, closed, latest }
    this.#history.record({ type: 'store.appended', ...facts })
    const log = this.#history.logs.get(session)
    events.forEach((body, index) => log?.events.push({ seq: after + 1 + index, body }))
    books.seq = after + count
    books.closed = closed
    for (const body of events) noteTurn(books.turns, body)
    if (snapshot !== null) log?.snapshots.push({ seq: books.seq, body: snapshot })
  }
}

function appendFacts(appends: readonly Append[]): CallFacts {
  const starts = appends.some(({ events }) =>
    events.some((body) => body.startsWith('{"type":"turn.started"')),
  )
  return { what: 'append', session: appends.map(({ session }) => session).join(), starts }
}

function noteTurn(turns: Set<string>, body: string): void {
  if (!body.startsWith('{"type":"turn.')) return
  const event = JSON.parse(body) as { readonly type: string; readonly turn: string }
  if (isTerminal(event)) turns.delete(event.turn)
  else turns.add(event.turn)
}
