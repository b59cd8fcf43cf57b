/**
 * Agents as they are: some answer, some throw, some never end, some do not listen, some speak when
 * it is over. Each run is recorded from its beginning to its end, because what the log says about
 * turns and what is really being done are two things (I2).
 */
import type { AskOutcome, Runner, RunnerContext, RunnerOutput } from '../../src/core/index.ts'
import type { History } from './history.ts'
import type { Process } from './process.ts'
import type { Random } from './random.ts'

/** What agents do how often. */
export const MODES = {
  echo: 10,
  message: 4,
  ask: 6,
  askTwice: 2,
  askAndGo: 2,
  bind: 2,
  history: 1,
  fail: 2,
  failAtOnce: 1,
  endless: 2,
  deaf: 2,
  stone: 1,
  unwritable: 1,
} as const

/** Turns take long. */
export const PATIENT: Readonly<Record<Mode, number>> = {
  ...MODES,
  echo: 3,
  endless: 8,
  stone: 6,
}

/** Turns take their time, but not more. */
export const STEADY: Readonly<Record<Mode, number>> = { ...MODES, message: 12, deaf: 6, stone: 0 }

type Mode = keyof typeof MODES

type Output = AsyncGenerator<RunnerOutput, { text: string; data?: unknown } | undefined>

export class Runners {
  readonly #history: History
  readonly #random: Random
  readonly #modes: Readonly<Record<Mode, number>>
  readonly #asked: (session: string, ask: string) => void
  /** What runs now, by the number of its run. */
  readonly active = new Map<number, { readonly node: string; readonly session: string }>()
  /** The last run of each session, by its node. */
  readonly #steered = new Map<string, SimulatedRun>()
  #runs = 0
  #asks = 0

  constructor(options: {
    history: History
    random: Random
    modes: Readonly<Record<Mode, number>>
    /** A question was put to the session's clients. */
    asked: (session: string, ask: string) => void
  }) {
    this.#history = options.history
    this.#random = options.random
    this.#modes = options.modes
    this.#asked = options.asked
  }

  /** The one agent there is, as it runs on this machine. */
  on(process: Process): Runner {
    return {
      run: ({ id, text }, context) => {
        this.#runs += 1
        const run = new SimulatedRun(this, process, {
          number: this.#runs,
          mode: this.#random.weighted(this.#modes),
          turn: id,
          text,
          context,
        })
        this.#steered.set(`${process.name} ${context.session.id}`, run)
        return run.perform()
      },
      steer: async ({ id }, message) => {
        const run = this.#steered.get(`${process.name} ${id}`)
        return run === undefined ? false : run.steer(message)
      },
    }
  }

  get random(): Random {
    return this.#random
  }

  get history(): History {
    return this.#history
  }

  nextAsk(session: string): string {
    this.#asks += 1
    const ask = `q${this.#asks}`
    this.#asked(session, ask)
    return ask
  }
}

class SimulatedRun {
  readonly #runners: Runners
  readonly #process: Process
  readonly #number: number
  readonly #mode: Mode
  readonly #turn: string
  #answer: string
  /** The answer is on its way: no message changes it any more. */
  #isAnswering = false
  readonly #text: string
  readonly #context: RunnerContext
  #deltas = 0

  constructor(
    runners: Runners,
    process: Process,
    facts: { number: number; mode: Mode; turn: string; text: string; context: RunnerContext },
  ) {
    this.#runners = runners
    this.#process = process
    this.#number = facts.number
    this.#mode = facts.mode
    this.#turn = facts.turn
    this.#text = facts.text
    this.#answer = `echo ${facts.text}`
    this.#context = facts.context
  }

  perform(): Output {
    const { session, signal } = this.#context
    const facts = { node: this.#process.name, session: session.id, turn: this.#turn }
    const run = this.#number
    this.#runners.active.set(run, facts)
    this.#record({ type: 'run.begun', run, ...facts, text: this.#text, mode: this.#mode })
    signal.addEventListener('abort', () => {
      this.#runners.active.delete(run)
      this.#record({ type: 'run.told', run })
    })
    if (this.#mode === 'failAtOnce') {
      this.#runners.active.delete(run)
      this.#record({ type: 'run.ended', run })
      throw new Error('this agent does not even begin')
    }
    return this.#recorded()
  }

  /** Takes a further message, refuses it, or does not say so until the turn is over, and later. */
  async steer({ id, text }: { readonly id: string; readonly text: string }): Promise<boolean> {
    const { random } = this.#runners
    const { session, signal } = this.#context
    if (random.chance(0.5)) await this.#process.sleep(random.between(1, 300))
    if (random.chance(0.1)) return new Promise(() => undefined)
    const isOver = this.#isAnswering || signal.aborted || this.#turn !== id
    if (isOver || random.chance(0.2)) return false
    this.#answer += ` ${text}`
    this.#record({ type: 'run.steered', session: session.id, text })
    if (random.chance(0.3)) await this.#process.sleep(random.between(1, 300))
    return true
  }

  async *#recorded(): Output {
    try {
      return yield* this.#script()
    } finally {
      this.#runners.active.delete(this.#number)
      this.#record({ type: 'run.ended', run: this.#number })
    }
  }

  async *#script(): Output {
    switch (this.#mode) {
      case 'message':
        yield* this.#say(this.#answer)
        this.#record({ type: 'run.message', run: this.#number, deltas: this.#deltas })
        yield { type: 'message', text: this.#answer }
        yield* this.#say('and more')
        return undefined
      case 'ask':
        await this.#ask()
        break
      case 'askTwice':
        await Promise.all([this.#ask(), this.#ask()])
        break
      case 'askAndGo':
        void this.#ask()
        this.#isAnswering = true
        return { text: this.#answer }
      case 'bind':
        await this.#bind()
        break
      case 'history':
        for await (const message of this.#context.history()) void message
        break
      case 'fail':
        yield* this.#say(this.#answer)
        throw new Error('this agent fails')
      case 'endless':
        yield* this.#say(this.#answer)
        await this.#untilTold()
        break
      case 'deaf':
        for (let count = 0; count < 12; count += 1) {
          yield* this.#say(count === 0 ? this.#answer : ' and on')
          await this.#process.sleep(this.#runners.random.between(200, 1_500))
        }
        return undefined
      case 'stone':
        return new Promise(() => undefined)
      case 'unwritable':
        this.#isAnswering = true
        return { text: this.#answer, data: unwritable() }
      case 'echo':
      case 'failAtOnce':
        break
    }
    yield* this.#say(this.#answer)
    return this.#runners.random.chance(0.5) ? undefined : { text: this.#answer }
  }

  /** The text in one to six parts, with pauses. */
  async *#say(text: string): Output {
    const { random } = this.#runners
    this.#isAnswering = true
    const size = Math.ceil(text.length / random.between(1, 6))
    for (let start = 0; start < text.length; start += size) {
      if (random.chance(0.7)) await this.#pause(random.between(1, 400))
      this.#deltas += 1
      yield { type: 'delta', text: text.slice(start, start + size) }
    }
    return undefined
  }

  /** A deaf agent does not stop when told. */
  async #pause(ms: number): Promise<void> {
    await this.#process.sleep(ms)
    if (this.#mode !== 'deaf') this.#context.signal.throwIfAborted()
  }

  #untilTold(): Promise<never> {
    const { signal } = this.#context
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error))
      if (signal.aborted) reject(signal.reason as Error)
    })
  }

  async #ask(): Promise<void> {
    const { random } = this.#runners
    const session = this.#context.session.id
    const ask = this.#runners.nextAsk(session)
    const facts = { ask, node: this.#process.name, session, turn: this.#turn }
    this.#record({ type: 'ask.begun', ...facts })
    const asking = this.#context.ask({
      kind: random.pick(['permission', 'choice']),
      question: ask,
      ...(random.chance(0.5) ? { timeoutMs: random.between(100, 2_500) } : {}),
      ...(random.chance(0.3) ? { onNobody: 'deny' as const } : {}),
    })
    const ended = (outcome: string): void => this.#record({ type: 'ask.ended', ask, outcome })
    await asking.then(
      (outcome) => ended(outcomeText(outcome)),
      () => ended('refused'),
    )
  }

  async #bind(): Promise<void> {
    const backend = `b${this.#number}`
    try {
      await this.#context.bind(backend)
      this.#record({ type: 'run.bound', run: this.#number, backend })
    } catch {
      // Another turn bound one before.
    }
  }

  /** The dead tell nothing. */
  #record(happening: Parameters<History['record']>[0]): void {
    if (this.#process.state !== 'dead') this.#runners.history.record(happening)
  }
}

function outcomeText(outcome: AskOutcome): string {
  return outcome.outcome === 'answered'
    ? `answered ${JSON.stringify(outcome.answer)}`
    : outcome.outcome
}

/** Data that can be looked at once, and not be written afterwards. */
function unwritable(): unknown {
  let looks = 0
  const toJSON = (): string => {
    looks += 1
    if (looks === 1) return 'data'
    throw new TypeError('this cannot be written')
  }
  return { toJSON }
}
