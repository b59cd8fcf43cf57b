/** Agents as functions, async or async generators; and the built-in ones, for trials and tests. */
import type {
  AskOutcome,
  AskOption,
  Input,
  Message,
  Question,
  Reply,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerResult,
  RunnerTurn,
} from '../core/index.ts'
import { wait } from '../platform/clock.ts'

/** Yields parts of the answer; returns the whole answer if it differs from the yielded parts. */
export type Agent = (
  turn: RunnerTurn,
  context: AgentContext,
) => AsyncGenerator<string | RunnerOutput, AgentResult, undefined> | Promise<AgentResult>

export type AgentResult = string | Reply | void

/** A runner's context; the options of an ask may be plain texts. */
export interface AgentContext extends Omit<RunnerContext, 'ask'> {
  ask(question: AgentQuestion): Promise<AskOutcome>
}

export type AgentQuestion = Omit<Question, 'options'> & {
  readonly options?: readonly (string | AskOption)[]
}

export function functionRunner(agent: Agent): Runner {
  return {
    async *run(turn, context): AsyncGenerator<RunnerOutput, RunnerResult> {
      const work = agent(turn, new FunctionContext(context))
      if (!(Symbol.asyncIterator in work)) return replyOf(await work)
      let isOver = false
      try {
        for (;;) {
          const { done, value } = await work.next()
          isOver = done === true
          if (done === true) return replyOf(value)
          yield typeof value === 'string' ? { type: 'delta', text: value } : value
        }
      } finally {
        // A generator that is abandoned runs its `finally` blocks.
        if (!isOver) await work.return(undefined)
      }
    },
  }
}

/** A class, so that its getters are no closures: V8 would keep those for long. */
class FunctionContext implements AgentContext {
  readonly #context: RunnerContext

  constructor(context: RunnerContext) {
    this.#context = context
  }

  get session(): RunnerContext['session'] {
    return this.#context.session
  }

  get signal(): AbortSignal {
    return this.#context.signal
  }

  readonly bind = (backend: string): Promise<void> => this.#context.bind(backend)
  readonly history = (): AsyncIterable<Message> => this.#context.history()
  readonly now = (): number => this.#context.now()
  readonly ask = ({ options, ...question }: AgentQuestion): Promise<AskOutcome> => {
    const whole = options === undefined ? question : { ...question, options: options.map(option) }
    return this.#context.ask(whole)
  }
}

function option(option: string | AskOption): AskOption {
  return typeof option === 'string' ? { id: option, label: option } : option
}

function replyOf(result: AgentResult): RunnerResult {
  return typeof result === 'string' ? { text: result } : (result ?? undefined)
}

/** Answers with its input unchanged. */
export const echo: Agent = async (turn) => turn.text

/** Streams its input word by word over two seconds, or over the `ms` of the input. */
export const slow: Agent = async function* ({ text, input }, { signal }) {
  const words = text.split(/(?<=\s)/)
  const pauseMs = slowMs(input) / words.length
  for (const word of words) {
    await wait(pauseMs, signal)
    yield word
  }
}

function slowMs(input: Input): number {
  const ms = typeof input === 'string' ? undefined : input['ms']
  return typeof ms === 'number' && ms >= 0 ? ms : 2_000
}

/** Asks for permission before it echoes. */
export const ask: Agent = async ({ text }, context) => {
  const outcome = await context.ask({
    kind: 'permission',
    question: `May I say ${JSON.stringify(text)}?`,
    options: ['allow', 'deny'],
  })
  if (outcome.outcome !== 'answered') return `I may not: ${outcome.outcome}`
  return outcome.answer === 'allow' ? text : 'I may not: denied'
}
