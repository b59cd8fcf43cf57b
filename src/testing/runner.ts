/**
 * What every runner must do, one claim per case: the contract of `Runner`, tried through a Holdfast
 * of its own. A claim about something that the runner does not offer (`capabilities`) tries that it
 * refuses clearly.
 */
import assert from 'node:assert/strict'
import {
  Holdfast,
  NO_CAPABILITIES,
  SETTING_NAMES,
  checkLog,
  type Capabilities,
  type CheckedEvent,
  type Runner,
  type SessionHandle,
  type Store,
} from '../core/index.ts'
import { systemClock, systemDigest, systemEntropy } from '../platform/clock.ts'
import { MemoryStore } from '../stores/memory.ts'

/** A runner, and inputs that make its agent do what the claims are about. */
export type RunnerUnderTest = {
  readonly runner: Runner
  readonly inputs: {
    /** Answers soon, with any text. */
    readonly answer: string
    /** Says something, then works until it is told to stop. */
    readonly hang: string
    /** Says something, then fails; null: it cannot be made to. */
    readonly fail: string | null
    /** Asks for a permission, then answers; null if it never asks. */
    readonly ask: string | null
  }
  /** The agent writes what it is always allowed into files of its own, where it stays. */
  readonly keepsGrants?: true
  /** Another runner with the same configuration and the same files, as after a restart. */
  readonly reopen?: () => Promise<Runner>
  /** Removes what the runner leaves behind; called after it was closed. */
  readonly dispose?: () => Promise<void>
}

export type RunnerCase = { readonly title: string; readonly run: () => Promise<void> }

type Claim = (trial: RunnerTrial) => Promise<void>

/** How long a claim waits for what must happen: agents are programs, and some start slowly. */
const PATIENCE_MS = 60_000

/** A picture of one pixel. */
const PIXEL = Uint8Array.from([
  ...[0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52],
  ...[0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d],
  ...[0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x64, 0x60, 0xf8, 0x5f, 0x0f, 0, 2, 0x87, 1, 0x80],
  ...[0xeb, 0x47, 0xba, 0x92, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82],
])
const NOTES = new TextEncoder().encode('a note')

/** Every case, for a runner that `open` makes anew each time. */
export function runnerConformance(open: () => Promise<RunnerUnderTest>): readonly RunnerCase[] {
  return Object.entries(CLAIMS).map(([title, claim]) => ({
    title,
    run: async () => {
      const tested = await open()
      const trial = new RunnerTrial(tested)
      try {
        await trial.start(tested.runner)
        await claim(trial)
      } finally {
        await trial.close()
        await tested.dispose?.()
      }
    },
  }))
}

class RunnerTrial {
  readonly inputs: RunnerUnderTest['inputs']
  readonly #tested: RunnerUnderTest
  readonly #store = new MemoryStore()
  #runner: Runner
  #hold!: Holdfast

  constructor(tested: RunnerUnderTest) {
    this.#tested = tested
    this.#runner = tested.runner
    this.inputs = tested.inputs
  }

  get runner(): Runner {
    return this.#runner
  }

  get can(): Capabilities {
    return { ...NO_CAPABILITIES, ...this.#runner.capabilities }
  }

  async start(runner: Runner): Promise<void> {
    this.#runner = runner
    this.#hold = new Holdfast({
      store: outliving(this.#store),
      runners: { tried: runner },
      clock: systemClock,
      entropy: systemEntropy,
      digest: systemDigest,
      node: systemEntropy.id(),
    })
    await this.#hold.authority.start()
  }

  async restart(): Promise<void> {
    await this.#hold.close()
    await this.start((await this.#tested.reopen?.()) ?? this.#tested.runner)
  }

  close(): Promise<void> {
    return this.#hold.close()
  }

  session(key = 'tried'): Promise<SessionHandle> {
    return this.#hold.resolve({ key })
  }

  fork(source: string): Promise<SessionHandle> {
    return this.#hold.fork(source)
  }

  /** Whether an agent that was started again does not know what it was allowed. */
  get canForget(): boolean {
    return this.canRestart && this.#tested.keepsGrants !== true
  }

  get canRestart(): boolean {
    return this.#tested.reopen !== undefined && this.can.load
  }
}

/** The store, which outlives a Holdfast, as a database does. */
function outliving(store: Store): Store {
  return new Proxy(store, {
    get: (target, name) => {
      if (name === 'close') return () => Promise.resolve()
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

async function until<Value>(what: string, look: () => Promise<Value | null>): Promise<Value> {
  const giveUpAt = performance.now() + PATIENCE_MS
  for (;;) {
    const value = await look()
    if (value !== null) return value
    assert.ok(performance.now() < giveUpAt, `${what}: not within ${PATIENCE_MS} ms`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** The turn that runs, once its agent has said something: then it has begun to work. */
async function workingTurn(session: SessionHandle): Promise<string> {
  const from = (await session.state()).seq - 1
  const signal = AbortSignal.timeout(PATIENCE_MS)
  for await (const event of session.events({ after: Math.max(0, from), signal })) {
    const isWork = ['delta', 'turn.output', 'turn.activity', 'message.added'].includes(event.type)
    if (isWork && 'turn' in event) return event.turn
    assert.ok(event.type !== 'turn.done', 'the turn is over that should go on')
  }
  throw new Error(`the agent has said nothing within ${PATIENCE_MS} ms`)
}

const openAsk = (session: SessionHandle) =>
  until('an ask', async () => (await session.asks())[0] ?? null)

async function eventsOf(session: SessionHandle): Promise<readonly CheckedEvent[]> {
  const { events } = await session.read(0, 10_000)
  return events.map(({ body }) => JSON.parse(body) as CheckedEvent)
}

/** I2, I3, I4, I8: every turn has exactly one end, and nothing is left. */
async function assertLinear(session: SessionHandle): Promise<void> {
  assert.deepEqual(checkLog(await eventsOf(session), { isAtRest: true }), [])
}

async function assertAnswers(session: SessionHandle, input: string): Promise<void> {
  const { state, reply, error } = await session.turn(input)
  assert.equal(state, 'done', `the turn ended as ${state}: ${error?.message ?? ''}`)
  assert.notEqual(reply?.text ?? '', '')
}

async function assertRefused(work: PromiseLike<unknown>, code: string): Promise<void> {
  await assert.rejects(Promise.resolve(work), (error) => {
    assert.equal((error as { code?: unknown }).code, code)
    return true
  })
}

const CLAIMS: Readonly<Record<string, Claim>> = {
  'ends a turn exactly once, with its answer': async (trial) => {
    const session = await trial.session()
    await assertAnswers(session, trial.inputs.answer)
    await assertLinear(session)
  },

  'answers one turn after the other, in one conversation of the agent': async (trial) => {
    const session = await trial.session()
    await assertAnswers(session, trial.inputs.answer)
    const { backend } = await session.state()
    await assertAnswers(session, trial.inputs.answer)
    assert.equal((await session.state()).backend, backend)
    await assertLinear(session)
  },

  'answers turns that come at once, each by itself': async (trial) => {
    const session = await trial.session()
    const { answer } = trial.inputs
    await Promise.all([1, 2, 3].map(() => assertAnswers(session, answer)))
    await assertLinear(session)
  },

  'serves several sessions at once': async (trial) => {
    const sessions = await Promise.all(['a', 'b'].map((key) => trial.session(key)))
    await Promise.all(sessions.map((session) => assertAnswers(session, trial.inputs.answer)))
    const backends = await Promise.all(sessions.map(async (one) => (await one.state()).backend))
    const [first, second] = backends
    assert.ok(first === null || first !== second, 'two sessions have one conversation')
  },

  'fails the turn if its agent fails, and answers the next': async (trial) => {
    const { fail, answer } = trial.inputs
    if (fail === null) return
    const session = await trial.session()
    const { state, error } = await session.turn(fail)
    assert.equal(state, 'failed')
    assert.notEqual(error?.message ?? '', '')
    await assertAnswers(session, answer)
    await assertLinear(session)
  },

  'stops when its turn is cancelled, and answers the next': async (trial) => {
    const session = await trial.session()
    const turn = session.turn(trial.inputs.hang)
    const id = await workingTurn(session)
    await session.cancelTurn(id, 'enough')
    assert.equal((await turn).state, 'cancelled')
    await assertAnswers(session, trial.inputs.answer)
    await assertLinear(session)
  },

  'says nothing more after its turn is over': async (trial) => {
    const session = await trial.session()
    const turn = session.turn(trial.inputs.hang)
    await session.cancelTurn(await workingTurn(session))
    await turn
    const { seq } = await session.state()
    await assertAnswers(session, trial.inputs.answer)
    const later = (await eventsOf(session)).filter((event) => event.seq > seq)
    assert.ok(later.every(({ turn: id }) => id === undefined || id === `t${seq + 1}`))
  },

  'gives a session up at once that is lost': async (trial) => {
    const session = await trial.session()
    const turn = session.turn(trial.inputs.hang)
    const id = await workingTurn(session)
    if (trial.runner.lose === undefined) await session.cancelTurn(id)
    else trial.runner.lose(session.id)
    assert.notEqual((await turn).state, 'done')
  },

  'asks, and goes on by the answer': async (trial) => {
    const { ask } = trial.inputs
    if (ask === null) return assert.equal(trial.can.asks, false)
    const session = await trial.session()
    const turn = session.turn(ask)
    const { id, options, detail, kind } = await openAsk(session)
    assert.notEqual(kind, '')
    assert.ok(detail !== undefined, 'the ask does not say what it is about')
    await session.answer(id, options?.[0]?.id ?? 'yes')
    assert.equal((await turn).state, 'done')
    await assertLinear(session)
  },

  'leaves no ask behind when its turn is cancelled': async (trial) => {
    const { ask } = trial.inputs
    if (ask === null) return
    const session = await trial.session()
    const turn = session.turn(ask)
    const { turn: id } = await openAsk(session)
    await session.cancelTurn(id)
    await turn
    assert.deepEqual(await session.asks(), [])
    await assertAnswers(session, trial.inputs.answer)
    await assertLinear(session)
  },

  'goes on without an answer where no client can give one': async (trial) => {
    const { ask } = trial.inputs
    if (ask === null) return
    const session = await trial.session()
    await session.turn(ask, { settings: { onNobody: 'deny' } })
    const asks = (await eventsOf(session)).filter(({ type }) => type === 'ask.settled')
    assert.ok(asks.length > 0)
    for (const settled of asks) {
      assert.equal((settled as { outcome?: unknown }).outcome, 'nobody_to_ask')
    }
    await assertLinear(session)
  },

  'takes a further message in its turn, or leaves it to the next': async (trial) => {
    const session = await trial.session()
    const turn = session.turn(trial.inputs.hang)
    const id = await workingTurn(session)
    const message = session.turn(trial.inputs.answer, { busy: 'steer' })
    const steered = trial.can.steering ? (await message.admission).isSteered : false
    await session.cancelTurn(id)
    await turn
    const { state } = await message
    assert.equal(state, steered ? 'cancelled' : 'done')
    await assertLinear(session)
  },

  'gives its agent images and files, or refuses them before anything has happened': async (
    trial,
  ) => {
    const session = await trial.session()
    // What some agents take is known only once they have run.
    await assertAnswers(session, trial.inputs.answer)
    const { turns } = await session.state()
    const text = { type: 'text', text: trial.inputs.answer } as const
    const image = { type: 'image', mediaType: 'image/png', data: PIXEL } as const
    const file = { type: 'file', name: 'notes.txt', mediaType: 'text/plain', data: NOTES } as const
    let taken = 0
    for (const [part, isTaken] of [
      [image, trial.can.images],
      [file, trial.can.files],
    ] as const) {
      const turn = session.turn({ parts: [text, part] })
      if (!isTaken) {
        await assertRefused(turn, 'input_unsupported')
        continue
      }
      const { state, error } = await turn
      assert.equal(state, 'done', `the ${part.type} was not taken: ${error?.message ?? ''}`)
      taken += 1
    }
    assert.equal((await session.state()).turns, turns + taken)
    await assertLinear(session)
  },

  'asks no more for what a person has allowed for the session until that is taken back': async (
    trial,
  ) => {
    const { ask } = trial.inputs
    if (ask === null) return
    const session = await trial.session()
    const turn = session.turn(ask)
    const { id, options, turn: asking } = await openAsk(session)
    const always = options?.find(({ grants = [] }) => grants.length > 0)
    if (always === undefined) return void (await session.cancelTurn(asking))
    await session.answer(id, always.id)
    await turn
    const { grants } = await session.state()
    assert.deepEqual(grants, always.grants)
    if (trial.canRestart) await trial.restart()
    const again = await trial.session()
    assert.deepEqual((await again.state()).grants, grants)
    const asked = async () => {
      const { state } = await again.turn(ask, { settings: { onNobody: 'deny' } })
      assert.equal(state, 'done')
      return (await eventsOf(again)).filter(({ type }) => type === 'ask.opened').length
    }
    assert.equal(await asked(), 1, 'it asked again')
    await assertLinear(again)
    if (!trial.canForget) return
    // A mode may have been allowed together with it.
    if (trial.can.settings.includes('mode')) await again.configure({ mode: null })
    for (const { id: grant } of await again.grants()) await again.revokeGrant(grant)
    assert.deepEqual((await again.state()).grants, [])
    assert.equal(await asked(), 2, 'it did not ask again for what was taken back')
    await assertLinear(again)
  },

  'removes what its agent keeps of an erased session, and works on': async (trial) => {
    const session = await trial.session()
    await assertAnswers(session, trial.inputs.answer)
    const { left } = await session.erase()
    assert.ok(left.every((what) => typeof what === 'string' && what !== ''))
    await assertAnswers(await trial.session(), trial.inputs.answer)
  },

  'refuses settings that it does not name': async (trial) => {
    const session = await trial.session()
    const values = { directories: ['/'], mcpServers: ['none'] } as const
    for (const name of SETTING_NAMES) {
      if (trial.can.settings.includes(name)) continue
      const value = name === 'directories' || name === 'mcpServers' ? values[name] : 'none'
      await assertRefused(session.configure({ [name]: value }), 'setting_unsupported')
      const turn = session.turn(trial.inputs.answer, { settings: { [name]: value } })
      await assertRefused(turn, 'setting_unsupported')
    }
    assert.deepEqual((await session.state()).settings, {})
    assert.equal((await session.state()).turns, 0)
  },

  'begins a fork where it says that it can, and refuses clearly elsewhere': async (trial) => {
    const session = await trial.session()
    await assertAnswers(session, trial.inputs.answer)
    const fork = trial.fork(session.id)
    if (trial.can.fork === null) return assertRefused(fork, 'capability_missing')
    await assertAnswers(await fork, trial.inputs.answer)
    await assertAnswers(session, trial.inputs.answer)
  },

  'continues its conversations after a restart': async (trial) => {
    const session = await trial.session()
    await assertAnswers(session, trial.inputs.answer)
    const { backend } = await session.state()
    if (!trial.canRestart) return
    await trial.restart()
    const again = await trial.session()
    await assertAnswers(again, trial.inputs.answer)
    assert.equal((await again.state()).backend, backend)
    await assertLinear(again)
  },

  'can be closed while a turn runs': async (trial) => {
    const session = await trial.session()
    const turn = session.turn(trial.inputs.hang)
    await workingTurn(session)
    await session.close()
    assert.notEqual((await turn).state, 'done')
  },
}
