/**
 * What seeded worlds have found, told as plots: the very sequence of happenings, without any
 * chance, so that it stays the same when the worlds and their draws change.
 *
 * The store holds a call back until the plot lets it go on: that is the only thing out of the
 * ordinary in most of them.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Holdfast, HoldfastError, type SessionHandle, type Store } from '../../../src/core/index.ts'
import { Connection } from '../../../src/doors/connect/connection.ts'
import { connectService } from '../../../src/doors/connect/entry.ts'
import { Hub } from '../../../src/doors/connect/hub.ts'
import type { Socket } from '../../../src/doors/connect/socket.ts'
import { MemoryStore } from '../../../src/stores/memory.ts'
import { functionRunner } from '../../../src/runners/function.ts'
import { History, type Happening } from '../history.ts'
import { BEGINNING_MS, Process } from '../process.ts'
import { Random } from '../random.ts'
import { Timeline } from '../timeline.ts'
import { checkEnds } from './check-ends.ts'
import { gatherWire } from './facts.ts'

// Nothing here takes real time: a plot that hangs has failed.
vi.setConfig({ testTimeout: 10_000 })

/** A store of which one call at a time can be held back, not applied and not answered, or fails. */
class SlowStore {
  readonly store: Store
  #held: { readonly what: string; readonly goOn: Promise<void> } | null = null

  constructor() {
    this.store = new Proxy(new MemoryStore(), {
      get: (target, name) => {
        const method = Reflect.get(target, name) as unknown
        if (typeof method !== 'function') return method
        return (...args: unknown[]) => this.#call(String(name), () => method.apply(target, args))
      },
    })
  }

  /** The next call of this kind waits until this is called. */
  hold(what: string): () => void {
    let letGo!: () => void
    this.#held = { what, goOn: new Promise<void>((resolve) => (letGo = resolve)) }
    return letGo
  }

  /** The next call of this kind fails. */
  fail(what: string): void {
    const goOn = Promise.reject(new HoldfastError('store_unavailable', 'the store is away'))
    goOn.catch(() => undefined)
    this.#held = { what, goOn }
  }

  get isHeld(): boolean {
    return this.#held === null
  }

  #call(what: string, apply: () => unknown): unknown {
    const held = this.#held
    if (held?.what !== what) return apply()
    this.#held = null
    return held.goOn.then(apply)
  }
}

/** A client's socket: what it is told, and why it was closed. */
class Told implements Socket {
  readonly address = 'page'
  readonly bufferedBytes = 0
  readonly frames: Record<string, any>[] = []
  closedWith: string | null = null

  send(data: string | Uint8Array): void {
    const text = typeof data === 'string' ? data : new TextDecoder().decode(data)
    const message = JSON.parse(text) as Record<string, any> | Record<string, any>[]
    this.frames.push(...(Array.isArray(message) ? message : [message]))
  }

  close(_code: number, reason: string): void {
    this.closedWith = reason
  }

  cut(): void {
    this.closedWith = 'cut'
  }

  of(type: string): Record<string, any>[] {
    return this.frames.filter((frame) => frame['type'] === type)
  }
}

/** One node in virtual time, with its door open. */
class Stage {
  readonly slow = new SlowStore()
  readonly holdfast: Holdfast
  readonly hub: Hub
  /** Turns that run, by their text: each goes on when its function is called. */
  readonly runs = new Map<string, () => void>()
  readonly #timeline = new Timeline()
  readonly process = new Process('node', this.#timeline, new Random(1))
  #ids = 0

  constructor() {
    const { process, runs } = this
    this.holdfast = new Holdfast({
      store: this.slow.store,
      runners: {
        main: functionRunner(async (turn, context) => {
          if (turn.text === 'ask') {
            const question = { kind: 'permission', question: '?', timeoutMs: 1_000 }
            return (await context.ask(question)).outcome
          }
          await new Promise<void>((resolve) => {
            runs.set(turn.text, resolve)
            context.signal.addEventListener('abort', () => resolve())
          })
          return 'done'
        }),
      },
      clock: process.clock,
      entropy: { id: () => `id${(this.#ids += 1)}` },
      digest: String,
      node: process.name,
      limits: { queuedTurnsMax: 1 },
    })
    this.hub = new Hub({ holdfast: this.holdfast })
  }

  async open(): Promise<this> {
    await this.holdfast.authority.start()
    return this
  }

  /** Lets everything happen that can. */
  settle(): Promise<void> {
    return this.pass(1)
  }

  pass(ms: number): Promise<void> {
    return this.#timeline.advance(this.#timeline.now + ms)
  }

  /** A session in which a turn runs. */
  async busy(): Promise<SessionHandle> {
    const session = await this.after(this.holdfast.resolve({ key: 'bob' }))
    await this.after(session.turn('first').admission)
    return session
  }

  /** What comes of it once everything has happened that can. */
  async after<Value>(work: Promise<Value>): Promise<Value> {
    await this.settle()
    return work
  }

  /** A client says hello, and all that can follow from that follows. */
  async arrive(hello: object): Promise<{ socket: Told; connection: Connection; welcome: any }> {
    const socket = new Told()
    const connection = new Connection(this.hub, socket, connectService)
    connection.receive(JSON.stringify({ type: 'hello', v: 1, ...hello }))
    await this.settle()
    return { socket, connection, welcome: socket.of('welcome')[0] }
  }

  async close(): Promise<void> {
    this.hub.close()
    const closed = this.holdfast.close({ drainMs: 0 })
    await this.pass(60_000)
    await closed
  }
}

let stage: Stage

beforeEach(async () => {
  stage = await new Stage().open()
})

afterEach(() => stage.close())

const outcome = (admission: Promise<{ readonly turn: string }>): Promise<string> =>
  admission.then(
    ({ turn }) => turn,
    (error: HoldfastError) => error.code,
  )

describe('a request that is sent again before its turn is known to be recorded', () => {
  it('gets that turn, and no 429: it waited, and is being started (seed 1003619)', async () => {
    const session = await stage.busy()
    const own = outcome(session.turn('own', { idempotencyKey: 'k' }).admission)
    await stage.settle()
    // The end of the first turn and the start of the second are one step, which takes long.
    const letGo = stage.slow.hold('append')
    stage.runs.get('first')?.()
    await stage.settle()
    expect(stage.slow.isHeld).toBe(true)
    const again = outcome(session.turn('own', { idempotencyKey: 'k', waitMs: 10 }).admission)
    const other = outcome(session.turn('other', { waitMs: 10 }).admission)
    await stage.pass(100)
    expect(await other).toBe('session_busy')
    letGo()
    await stage.settle()
    expect(await own).toMatch(/^t/)
    expect(await again).toBe(await own)
  })

  it('gets that turn, and no 429: it is being queued, and has filled the queue', async () => {
    const session = await stage.busy()
    const letGo = stage.slow.hold('append')
    const own = session.submit('own', { idempotencyKey: 'k' })
    await stage.settle()
    const later = session.submit('own', { idempotencyKey: 'k' }).then(({ id }) => id, String)
    const again = outcome(session.turn('own', { idempotencyKey: 'k', waitMs: 10 }).admission)
    await stage.pass(100)
    letGo()
    await stage.settle()
    const { id } = await own
    expect([await later, await again]).toEqual([id, id])
  })

  it('makes one turn of one that waits and one that is queued', async () => {
    const session = await stage.busy()
    const waiting = outcome(session.turn('own', { idempotencyKey: 'k', waitMs: 10 }).admission)
    await stage.settle()
    const letGo = stage.slow.hold('append')
    const queued = session.submit('own', { idempotencyKey: 'k' }).then(({ id }) => id, String)
    await stage.pass(100)
    letGo()
    await stage.settle()
    expect(await queued).toMatch(/^t/)
    expect(await waiting).toBe(await queued)
    const { queued: turns } = await session.state()
    expect(turns.map(({ id }) => id)).toEqual([await queued])
  })
})

describe('a hold that is lost', () => {
  it('ends its connections at once, whatever their streams wait for (seed 1015832)', async () => {
    const letGo = stage.slow.hold('read')
    const hello = { key: 'bob', options: { reconnect: 'resume', exclusive: true } }
    const first = await stage.arrive(hello)
    expect([first.welcome.role, stage.slow.isHeld]).toEqual(['driver', true])
    stage.slow.fail('append')
    const turn = outcome(stage.holdfast.session(first.welcome.session.id).turn('x').admission)
    await stage.settle()
    expect([await turn, first.socket.closedWith]).toEqual([
      'store_unavailable',
      'store_unavailable',
    ])
    // Another one drives it now; the first one learns that when it comes back.
    const second = await stage.arrive(hello)
    expect(second.welcome.role).toBe('driver')
    letGo()
    await stage.settle()
    expect(first.socket.of('superseded')).toEqual([])
  })
})

describe('a client that comes back', () => {
  const hello = { key: 'bob', options: { reconnect: 'reopen', graceMs: 2_000 } }
  const back = ({ session, attachment, resume }: any) => ({
    session: session.id,
    auth: { resume: { attachment, token: resume } },
  })

  it('hears of a close that is one step with its return (seed 1011103)', async () => {
    const { connection, welcome } = await stage.arrive(hello)
    connection.closed()
    await stage.settle()
    const session = stage.holdfast.session(welcome.session.id)
    const letGo = stage.slow.hold('append')
    const guest = session.attach()
    await stage.settle()
    const { socket } = await stage.arrive(back(welcome))
    const closed = session.close()
    await stage.settle()
    letGo()
    await stage.settle()
    await Promise.all([guest, closed])
    expect(socket.of('refuse')).toMatchObject([{ code: 'session_closed', hint: 'start_new' }])
  })

  it('keeps its turn although its return is recorded after its grace (seed 5017640)', async () => {
    const first = await stage.arrive(hello)
    first.connection.receive(
      JSON.stringify({ type: 'turn', id: '1', input: 'long', onDisconnect: 'cancel' }),
    )
    await stage.settle()
    first.connection.closed()
    await stage.pass(1_000)
    const letGo = stage.slow.hold('append')
    const { socket } = await stage.arrive(back(first.welcome))
    await stage.pass(5_000)
    letGo()
    await stage.settle()
    expect(socket.of('welcome')).toHaveLength(1)
    const session = stage.holdfast.session(first.welcome.session.id)
    const { running, turns } = await stage.after(session.state())
    expect([running?.input, turns]).toEqual(['long', 1])
    stage.runs.get('long')?.()
    await stage.settle()
    expect(socket.of('turn.done')).toHaveLength(1)
  })
})

describe('a hello that was long on its way', () => {
  const hello = { key: 'bob', options: { reconnect: 'reopen', graceMs: 60_000 } }
  const back = ({ session, attachment, resume }: any) => ({
    session: session.id,
    auth: { resume: { attachment, token: resume } },
  })
  const lost = async () => {
    const first = await stage.arrive(hello)
    first.connection.closed()
    await stage.settle()
    return back(first.welcome)
  }

  it('does not take the place of a later one of its client (seed 5118034345)', async () => {
    const coming = await lost()
    const later = await stage.arrive(coming)
    const late = await stage.arrive(coming)
    await stage.pass(10_000)
    expect([late.socket.closedWith, late.socket.of('welcome')]).toEqual(['too_slow', []])
    expect([later.socket.closedWith, later.socket.of('superseded')]).toEqual([null, []])
  })

  it('does not make the newest token of its client useless (seed 5118041891)', async () => {
    const coming = await lost()
    const later = await stage.arrive(coming)
    later.connection.closed()
    await stage.settle()
    const late = await stage.arrive(coming)
    await stage.pass(10_000)
    expect([late.socket.closedWith, late.socket.of('welcome')]).toEqual(['too_slow', []])
    const { welcome } = await stage.arrive(back(later.welcome))
    expect(welcome).toMatchObject({ attachment: later.welcome.attachment, epoch: 3 })
  })

  it('is told from one whose last welcome was lost by a sign of life', async () => {
    const coming = await lost()
    const unheard = await stage.arrive(coming)
    const { socket, connection } = await stage.arrive(coming)
    await stage.pass(2_000)
    expect(socket.of('ping')).toHaveLength(1)
    connection.receive('{"type":"pong"}')
    await stage.settle()
    const { attachment } = unheard.welcome
    expect(socket.of('welcome')).toMatchObject([{ attachment, epoch: 3 }])
    expect(unheard.socket.closedWith).toBe('superseded')
  })

  it('puts nobody out if its client answers and is gone at once', async () => {
    const coming = await lost()
    const later = await stage.arrive(coming)
    const { connection } = await stage.arrive(coming)
    await stage.pass(2_000)
    connection.receive('{"type":"pong"}')
    connection.closed()
    await stage.settle()
    expect([later.socket.closedWith, later.socket.of('superseded')]).toEqual([null, []])
  })

  it.each([
    ['as a new client', {}],
    ['to take it over', { take: true }],
  ])('puts nobody out of an exclusive session: it came %s', async (_, extra) => {
    const exclusive = { key: 'bob', options: { exclusive: true } }
    const driver = await stage.arrive(exclusive)
    const late = await stage.arrive({ ...exclusive, ...extra })
    await stage.pass(10_000)
    expect([late.socket.closedWith, late.socket.of('welcome')]).toEqual(['too_slow', []])
    expect([driver.socket.closedWith, driver.socket.of('superseded')]).toEqual([null, []])
  })
})

describe('a clock that is set', () => {
  it.each([
    ['back', -3_600_000],
    ['forward', 3_600_000],
  ])('%s by an hour moves no deadline, and no event before another', async (_, jumpMs) => {
    const session = await stage.busy()
    const attached = await stage.after(session.attach({ answers: ['permission'] }))
    stage.process.wallMs += jumpMs
    stage.runs.get('first')?.()
    await stage.settle()
    const turn = session.turn('ask')
    await stage.pass(900)
    const { asks, running } = await stage.after(session.state())
    expect([running?.input, asks.length]).toEqual(['ask', 1])
    const lost = stage.after(attached.lose())
    await stage.pass(200)
    await lost
    expect(await turn).toMatchObject({ state: 'done', reply: { text: 'timed_out' } })
    const { events } = await stage.after(session.read(0, 100))
    const times = events.map(({ body }) => (JSON.parse(body) as { at: number }).at)
    expect(times).toEqual(times.toSorted((a, b) => a - b))
  })
})

describe('a process that was frozen', () => {
  it('takes up what came meanwhile before what comes just then (seed 779445)', async () => {
    const timeline = new Timeline()
    const process = new Process('server', timeline, new Random(1))
    const seen: string[] = []
    process.freeze()
    process.deliver('message', () => seen.push('accepted'))
    timeline.after(10, () => process.thaw())
    timeline.after(10, () => process.deliver('message', () => seen.push('closed')))
    await timeline.advance(20)
    expect(seen).toEqual(['accepted', 'closed'])
  })
})

describe('the check that who left has no place', () => {
  const hello = (extra: object): string => JSON.stringify({ type: 'hello', v: 1, ...extra })
  const log: object[] = [
    { type: 'session.created', id: 's1', key: 'bob', reconnect: 'resume', graceMs: 2_000 },
    { type: 'attachment.opened', attachment: 'a1', role: 'driver', answers: [] },
    { type: 'attachment.detached', attachment: 'a1', graceUntil: BEGINNING_MS + 2_000 },
  ]

  function violations(happenings: readonly Happening[]): readonly string[] {
    const history = new History(1, false, () => 0)
    for (const happening of happenings) history.record(happening)
    const events = log.map((event, index) => {
      const seq = index + 1
      return { seq, body: JSON.stringify({ ...event, seq, at: BEGINNING_MS + 10 * seq }) }
    })
    history.logs.set('s1', { events, snapshots: [] })
    return [...checkEnds(gatherWire(history))].map(({ message }) => message)
  }

  const leaver: readonly Happening[] = [
    { type: 'wire.opened', link: 1, by: 'tab1.1', node: 'node1' },
    { type: 'wire.heard', link: 1, text: hello({ key: 'bob' }) },
    { type: 'wire.heard', link: 1, text: '{"type":"bye"}' },
  ]

  it('objects if all who can have taken that place had left', () => {
    expect(violations(leaver)).toEqual(['s1: the place of a1, who left, is kept'])
  })

  it('knows that a copied token makes a place too (seed 779773)', () => {
    const resume = { attachment: 'a0', token: 'copied' }
    expect(
      violations([
        ...leaver,
        { type: 'wire.opened', link: 2, by: 'tab2.1', node: 'node1' },
        { type: 'wire.heard', link: 2, text: hello({ session: 's1', auth: { resume } }) },
      ]),
    ).toEqual([])
  })

  it('knows that a goodbye may be lost with a crash or a stop (seed 20018218)', () => {
    const appended = { type: 'store.appended', session: 's1', closed: false } as const
    const latest = { epoch: 1, seq: 0, closed: false }
    const recorded = (epoch: number, after: number): Happening => ({
      ...{ ...appended, call: after, node: `node${epoch}`, epoch, after, count: 1, latest },
    })
    expect(violations([...leaver, recorded(1, 1), recorded(2, 2)])).toEqual([])
    expect(violations([...leaver, recorded(1, 1), recorded(1, 2)])).toHaveLength(1)
    const stopping: Happening = { type: 'node.stopping', node: 'node1' }
    // Seed 9200087424: the node stops before it can record the goodbye.
    expect(violations([...leaver, recorded(1, 1), stopping, recorded(1, 2)])).toEqual([])
  })
})
