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
  /** Another runner with the same configuration and the same files, as after a restart. */
  readonly reopen?: () => Promise<Runner>
  /** Removes what the runner leaves behind; called after it was closed. */
  readonly dispose?: () => Promise<void>
}

export type RunnerCase = { readonly title: string; readonly run: () => Promise<void> }

type Claim = (trial: RunnerTrial) => Promise<void>

/** How long a claim waits for what must happen: agents are programs, and some start slowly. */
const PATIENCE_MS = 60_000

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
