/**
 * One turn being carried out by its runner. Whatever the runner does (throw, never end, speak after
 * the end), the turn ends once and its lane is released (I3).
 */
import type { Command, SettingsChange, TurnEnd } from './commands.ts'
import { boundActivity, DROPPED_KIND } from './activities.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError, messageOf } from './errors.ts'
import { readLastPosition, readMessages } from './history.ts'
import type { Limits } from './limits.ts'
import { readBlob, withParts } from './parts.ts'
import type { Question } from './questions.ts'
import { checkBackend, checkOutput, checkReply, dataChars } from './runner-output.ts'
import { checkSettings, turnSettings } from './settings.ts'
import type {
  Activity,
  AskOutcome,
  Input,
  Principal,
  Reply,
  Session,
  Settings,
  Turn,
  TurnError,
} from './state.ts'
import type { Message, Runner, RunnerContext, RunnerOutput, RunnerTurn } from './runner.ts'
import type { ClientAnswer } from './turn-clients.ts'
import { inputText, partsOf } from './turns.ts'

/** What a run needs from its session. */
export interface RunHost {
  readonly session: Session
  readonly holder: CoreContext
  /** The time by the log. */
  now(): number
  post(command: Command | (() => Command)): Promise<unknown>
  delta(turn: string, text: string): void
  ask(turn: string, question: Question): Promise<AskOutcome>
  finish(command: Command & { type: 'finish' }): void
}

/** Why a run was stopped before its runner was done. */
type Stop =
  | { readonly state: 'cancelled'; readonly reason: string; readonly by: Principal | null }
  | { readonly state: 'failed'; readonly error: TurnError }

/** Ends a wait with an error. */
export type GiveUp = (error: HoldfastError) => void

/** So much of the output is recorded at once, however short the time. */
const CHECKPOINT_CHARS = 262_144

/** Characters of messages and activities that may wait to be recorded while the runner goes on. */
const UNRECORDED_CHARS_MAX = 262_144
/** What each of them counts besides its own length. */
const RECORD_CHARS = 1_024

/** After so many outputs without a pause, everybody else gets a turn of the event loop. */
const OUTPUTS_PER_PAUSE = 128

export class Run {
  readonly turn: Turn
  /** By the monotonic clock. */
  readonly startedAt: number
  readonly host: RunHost
  /** Null: no agent of that name is configured here (any more). */
  readonly runner: Runner | null
  /** Made when the runner first looks at its signal: most never do. */
  #abort: AbortController | null = null
  readonly #limits: Limits
  /** What was said since the last message. */
  #text = ''
  /** What was said before messages that are not decided yet: a stop may be decided first. */
  #undecided = ''
  /** Settles when all messages and activities so far are recorded; null: they are. */
  #recording: Promise<void> | null = null
  #unrecordedChars = 0
  /** How much of that is recorded, and when the rest will be. */
  #recorded = 0
  #cancelCheckpoint: (() => void) | null = null
  #stop: Stop | null = null
  #over = false
  #outputs = 0
  #hasSpoken = false
  #activities = 0
  #cancelTimer: () => void

  constructor(host: RunHost, turn: Turn, runner: Runner | null) {
    const { clock, limits } = host.holder
    this.turn = turn
    this.runner = runner
    this.host = host
    this.#limits = limits
    this.startedAt = clock.monotonic()
    this.#cancelTimer = clock.after(limits.turnMs, () => {
      const message = `the turn ran longer than ${limits.turnMs} ms`
      const facts = { reason: 'turn_timeout', session: host.session.id, turn: turn.id }
      host.holder.diagnose('limit_reached', message, facts)
      this.#stopWith({ state: 'failed', error: { code: 'turn_timeout', message } })
    })
  }

  /** Runs when `before` has settled, which never rejects. */
  start(before: Promise<unknown> | null): void {
    if (this.runner !== null) return void this.#drive(this.runner, before)
    const message = `no agent is called ${this.host.session.agent} here`
    this.#end({ state: 'failed', error: { code: 'agent_unknown', message }, reply: null })
  }

  /** Asks the runner to stop, and goes on without it after the grace time. */
  cancel(reason: string, by: Principal | null): void {
    this.#stopWith({ state: 'cancelled', reason, by })
  }

  /** The same for a turn that fails; false: it is being stopped already. */
  fail(error: HoldfastError): boolean {
    if (this.#over || this.#stop !== null) return false
    this.#stopWith({ state: 'failed', error: turnError(error) })
    return true
  }

  /**
   * The turn is over, or the session is no longer ours: whatever is said from now on is dropped.
   */
  abandon(why?: HoldfastError): void {
    if (this.#over) return
    this.#over = true
    this.#cancelTimer()
    this.#cancelCheckpoint?.()
    this.#abort?.abort(why ?? this.#overError())
  }

  /** What it has said since the last message that is decided; null: nothing. */
  get said(): string | null {
    const text = this.#undecided + this.#text
    return text === '' ? null : text
  }

  get signal(): AbortSignal {
    if (this.#abort !== null) return this.#abort.signal
    this.#abort = new AbortController()
    if (this.#over || this.#stop !== null) this.#abort.abort(this.#overError())
    return this.#abort.signal
  }

  async #drive(runner: Runner, before: Promise<unknown> | null): Promise<void> {
    let iterator: ReturnType<Runner['run']> | null = null
    try {
      if (before !== null) await before
      const message = this.#messageFor(runner, this.turn.input)
      const turn = message instanceof Promise ? await message : message
      if (this.#over) return
      iterator = runner.run(turn, runContext(this))
      for (;;) {
        const step = await iterator.next()
        if (this.#over) return this.#dropLate(iterator)
        if (step.done === true) return this.#end({ state: 'done', reply: this.#last(step.value) })
        await this.#output(step.value)
      }
    } catch (error) {
      if (this.#over) return this.#dropLate(iterator)
      this.#end({ state: 'failed', error: turnError(error), reply: this.#last() })
      // If it was not the runner that threw, it gets to run its clean-up.
      iterator?.return?.().catch(() => undefined)
    }
  }

  async #output(output: RunnerOutput): Promise<void> {
    this.#outputs += 1
    if (this.#outputs % OUTPUTS_PER_PAUSE === 0) await this.#pause()
    if (this.#over) throw this.#overError()
    checkOutput(output)
    if (output.type !== 'activity') this.#spoke()
    if (output.type === 'message') return this.#message(output)
    if (output.type === 'activity') return this.#activity(output)
    // Deltas are told at once, so those before them have to be told first.
    if (this.#recording !== null) await this.#recording
    if (this.#over) throw this.#overError()
    this.#text += output.text
    if (this.#text.length > this.#limits.replyCharsMax) throw this.#tooLong()
    if (output.text === '') return
    this.host.delta(this.turn.id, output.text)
    this.#checkpointLater()
  }

  #spoke(): void {
    if (this.#hasSpoken) return
    this.#hasSpoken = true
    const { clock, figures } = this.host.holder
    const { firstOutput } = figures.agent(this.host.session.agent)
    firstOutput.observeMs(clock.monotonic() - this.startedAt)
  }

  /** What is said and shown is recorded soon, unless the turn is over before. */
  #checkpointLater(): void {
    if (this.#text.length - this.#recorded >= CHECKPOINT_CHARS) return this.#checkpoint()
    const { clock } = this.host.holder
    this.#cancelCheckpoint ??= clock.after(this.#limits.checkpointMs, () => this.#checkpoint())
  }

  #checkpoint(): void {
    this.#cancelCheckpoint?.()
    this.#cancelCheckpoint = null
    const text = this.#text.slice(this.#recorded)
    if (this.#over || text === '') return
    this.#recorded = this.#text.length
    // If the hold is lost, another owner goes on from the checkpoint before.
    this.host.post({ type: 'output', turn: this.turn.id, text }).catch(() => undefined)
  }

  /**
   * Records it behind what came before. The runner goes on meanwhile, unless too much waits: what
   * it says next, and the end of its turn, come behind it.
   */
  #record(command: Command | (() => Command), length: number): Promise<void> | undefined {
    const chars = length + RECORD_CHARS
    this.#unrecordedChars += chars
    const recorded = this.host
      .post(command)
      .then(
        () => undefined,
        (error: unknown) => this.#end({ state: 'failed', error: turnError(error), reply: null }),
      )
      .then(() => {
        this.#unrecordedChars -= chars
        if (this.#recording === recorded) this.#recording = null
      })
    this.#recording = recorded
    return this.#unrecordedChars > UNRECORDED_CHARS_MAX ? recorded : undefined
  }

  async #message({ text, data }: Reply): Promise<void> {
    if (this.#isTooLong({ text, data })) throw this.#tooLong()
    const said = this.#text
    this.#undecided += said
    this.#text = ''
    this.#recorded = 0
    const reply = data === undefined ? { text } : { text, data }
    const command = (): Command => {
      this.#undecided = this.#undecided.slice(said.length)
      return { type: 'message', turn: this.turn.id, reply }
    }
    await this.#record(command, text.length + dataChars(data))
  }

  /** Beyond the limit they are dropped, and their number is recorded at the turn's end. */
  async #activity(activity: Activity): Promise<void> {
    const bounded = boundActivity(activity, this.#limits)
    this.#activities += 1
    if (this.#activities > this.#limits.activitiesMax) {
      if (this.#activities === this.#limits.activitiesMax + 1) this.#tellTooManyActivities()
      this.host.holder.counters.activitiesDropped += 1
      return
    }
    const command = { type: 'activity', turn: this.turn.id, activity: bounded } as const
    await this.#record(command, dataChars(bounded.data))
  }

  #tellTooManyActivities(): void {
    const { session, holder } = this.host
    const message = 'a turn told more about its work than is recorded'
    const facts = { reason: 'activities', session: session.id, turn: this.turn.id }
    holder.diagnose('limit_reached', message, facts)
  }

  #tellDropped(): void {
    const count = this.#activities - this.#limits.activitiesMax
    if (count <= 0) return
    const activity = { kind: DROPPED_KIND, data: { count } }
    // If the hold is lost, so is the count.
    this.host.post({ type: 'activity', turn: this.turn.id, activity }).catch(() => undefined)
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => void this.host.holder.clock.after(0, resolve))
  }

  /** The turn's last message: what the runner returned, or what it said since the last one. */
  #last(reply?: Reply): Reply | null {
    if (reply === undefined) return this.#text === '' ? null : { text: this.#text }
    this.#spoke()
    return checkReply(reply)
  }

  #stopWith(stop: Stop): void {
    if (this.#over || this.#stop !== null) return
    this.#stop = stop
    this.#cancelTimer()
    const { clock, limits } = this.host.holder
    this.#cancelTimer = clock.after(limits.cancelGraceMs, () =>
      this.#end({ ...stop, reply: this.#last() }),
    )
    this.#abort?.abort(this.#overError())
    // A runner that waits for an answer would not notice the signal. If the hold is lost, so is the
    // ask.
    this.host.post({ type: 'withdraw', turn: this.turn.id }).catch(() => undefined)
  }

  #end(end: TurnEnd & { readonly reply: Reply | null }): void {
    if (this.#over) return
    const stop = this.#stop
    this.abandon()
    this.#tellDropped()
    this.host.finish({ type: 'finish', turn: this.turn.id, end: this.#outcome(end, stop) })
  }

  #outcome(end: TurnEnd & { readonly reply: Reply | null }, stop: Stop | null): TurnEnd {
    const { reply } = end
    try {
      if (reply !== null && this.#isTooLong(reply)) {
        return { state: 'failed', error: turnError(this.#tooLong()), reply: null }
      }
    } catch (error) {
      return { state: 'failed', error: turnError(error), reply: this.#last() }
    }
    return stop === null ? end : { ...stop, reply }
  }

  ask(question: Question): Promise<AskOutcome> {
    const { onNobody = this.settings.onNobody } = question
    const asked = onNobody === undefined ? question : { ...question, onNobody }
    return this.#whileRunning(() => this.host.ask(this.turn.id, asked))
  }

  /**
   * Gives the turn another message; false: the agent has not taken it. Rejects if the runner does
   * not say whether it has, some time after the turn's end, or when the session is released: then
   * all of `waiting` are called.
   */
  steer(input: Input, waiting: Set<GiveUp>): Promise<boolean> {
    const { runner } = this
    if (this.#over || this.#stop !== null || runner?.steer === undefined) {
      return Promise.resolve(false)
    }
    const { id, backend } = this.host.session
    const message = this.#messageFor(runner, input)
    const taken =
      message instanceof Promise
        ? message.then((loaded) => runner.steer?.({ id, backend }, loaded) ?? false)
        : runner.steer({ id, backend }, message)
    return this.#soonAfterEnd(taken, waiting)
  }

  /** With the bytes of its parts, if it has any. */
  #messageFor(runner: Runner, input: Input): RunnerTurn | Promise<RunnerTurn> {
    const turn = { id: this.turn.id, input, text: inputText(input) }
    return partsOf(input) === null ? turn : withParts(turn, this.host, runner)
  }

  #soonAfterEnd<Result>(work: Promise<Result>, waiting: Set<GiveUp>): Promise<Result> {
    const { clock, limits } = this.host.holder
    const { signal } = this
    return new Promise((resolve, reject) => {
      let cancelTimer = (): void => undefined
      const ended = (): void => {
        cancelTimer = clock.after(limits.cancelGraceMs, () => reject(this.#overError()))
      }
      signal.addEventListener('abort', ended)
      const settle = (): void => {
        cancelTimer()
        waiting.delete(giveUp)
        signal.removeEventListener('abort', ended)
      }
      const giveUp: GiveUp = (error) => {
        settle()
        reject(error)
      }
      waiting.add(giveUp)
      work.then(resolve, reject).finally(settle)
    })
  }

  get settings(): Settings {
    return turnSettings(this.host.session.settings, this.turn.settings)
  }

  async configure(change: SettingsChange): Promise<void> {
    const settings = checkSettings(change)
    await this.#whileRunning(() => this.host.post({ type: 'configure', settings, by: null }))
  }

  get clientOffers(): ReadonlySet<string> {
    const { session, holder } = this.host
    return holder.turnClients.offersOf(session.id, this.turn)
  }

  askClient(method: string, params: object): Promise<ClientAnswer> {
    const { turn, signal } = this
    const { session, holder } = this.host
    return this.#whileRunning(() =>
      holder.turnClients.request({ session: session.id, turn, signal }, method, params),
    )
  }

  async bind(backend: string): Promise<void> {
    checkBackend(backend)
    await this.#whileRunning(() => this.host.post({ type: 'bind', backend }))
  }

  #whileRunning<Result>(work: () => Promise<Result>): Promise<Result> {
    if (!this.#over && this.#stop === null) return work()
    this.host.holder.counters.outputsLate += 1
    return Promise.reject(this.#overError())
  }

  async *history(): AsyncGenerator<Message> {
    const { session, holder } = this.host
    for await (const message of readMessages(holder, session.id)) {
      if (message.turn === this.turn.id) return
      yield message
    }
  }

  /** Output or an end that comes after the turn was over is dropped and counted. */
  #dropLate(iterator: ReturnType<Runner['run']> | null): void {
    this.host.holder.counters.outputsLate += 1
    // Its own clean-up may fail too; the turn has its end already.
    iterator?.return?.().catch(() => undefined)
  }

  #overError(): HoldfastError {
    return new HoldfastError('turn_over', `turn ${this.turn.id} is over`)
  }

  #isTooLong({ text, data }: Reply): boolean {
    return text.length + dataChars(data) > this.#limits.replyCharsMax
  }

  #tooLong(): HoldfastError {
    const { replyCharsMax } = this.#limits
    return new HoldfastError('body_too_large', `the answer is over ${replyCharsMax} characters`)
  }
}

const RUN = Symbol('run')

/**
 * All contexts share these getters. The getters of an object literal would be closures of their
 * own, which V8 keeps, with all that they refer to, until its next full collection.
 */
const CONTEXT_GETTERS: PropertyDescriptorMap & ThisType<{ readonly [RUN]: Run }> = {
  session: {
    enumerable: true,
    get() {
      const { session, holder } = this[RUN].host
      return holder.rules.forAgent(session)
    },
  },
  signal: {
    enumerable: true,
    get() {
      return this[RUN].signal
    },
  },
  settings: {
    enumerable: true,
    get() {
      return this[RUN].settings
    },
  },
}

/** What a runner gets: all properties are its own, so that an agent may spread or wrap it. */
function runContext(run: Run): RunnerContext {
  const context: Omit<RunnerContext, 'session' | 'signal' | 'settings'> = {
    ask: (question) => run.ask(question),
    bind: (backend) => run.bind(backend),
    configure: (settings) => run.configure(settings),
    history: () => run.history(),
    lastPosition: () => readLastPosition(run.host.holder, run.host.session.id, run.turn.id),
    readBlob: (digest) => readBlob(run.host.holder.store, run.host.session.id, digest),
    now: () => run.host.now(),
    clientOffers: () => run.clientOffers,
    clientTools: () => run.host.holder.clientTools.of(run.host.session.id),
    askClient: (method, params) => run.askClient(method, params),
  }
  Object.defineProperty(context, RUN, { value: run })
  return Object.defineProperties(context as RunnerContext, CONTEXT_GETTERS)
}

/** A failure as the log keeps it: a code and a sentence, never a stack. */
export function turnError(thrown: unknown): TurnError {
  if (thrown instanceof HoldfastError) return { code: thrown.code, message: thrown.message }
  return { code: 'runner_failed', message: messageOf(thrown).slice(0, 2_000) }
}
