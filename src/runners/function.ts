/** An agent as a function: async, or an async generator. */
import type {
  AskOutcome,
  AskOption,
  Question,
  Reply,
  Runner,
  RunnerContext,
  RunnerOutput,
  RunnerResult,
  RunnerTurn,
} from '../core/index.ts'

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
      const work = agent(turn, agentContext(context))
      return Symbol.asyncIterator in work ? yield* outputs(work) : replyOf(await work)
    },
  }
}

/** A generator's texts as deltas. A generator that is abandoned runs its `finally` blocks. */
async function* outputs(
  work: Exclude<ReturnType<Agent>, Promise<AgentResult>>,
): AsyncGenerator<RunnerOutput, RunnerResult> {
  let ended = false
  try {
    for (;;) {
      const step = await work.next()
      ended = step.done === true
      if (step.done === true) return replyOf(step.value)
      yield typeof step.value === 'string' ? { type: 'delta', text: step.value } : step.value
    }
  } finally {
    if (!ended) await work.return(undefined)
  }
}

function agentContext(context: RunnerContext): AgentContext {
  return {
    get session() {
      return context.session
    },
    get signal() {
      return context.signal
    },
    bind: (backend) => context.bind(backend),
    history: () => context.history(),
    now: () => context.now(),
    ask: ({ options, ...question }) =>
      context.ask(options === undefined ? question : { ...question, options: options.map(option) }),
  }
}

function option(option: string | AskOption): AskOption {
  return typeof option === 'string' ? { id: option, label: option } : option
}

function replyOf(result: AgentResult): RunnerResult {
  return typeof result === 'string' ? { text: result } : (result ?? undefined)
}
