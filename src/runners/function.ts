/** Agents as functions, async or async generators; and the built-in ones, for trials and tests. */
import {
  chosen,
  NO_CAPABILITIES,
  type Capabilities,
  type Question,
  type Reply,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerResult,
  type RunnerTurn,
} from '../core/index.ts'
import { wait } from '../platform/clock.ts'
import { asObject } from './json.ts'

/** Yields parts of the answer; returns the whole answer if it differs from the yielded parts. */
export type Agent = {
  (
    turn: RunnerTurn,
    context: AgentContext,
  ): AsyncGenerator<string | RunnerOutput, AgentResult, undefined> | Promise<AgentResult>
  /** What it can do; settings that it does not name are refused. By default instructions only. */
  readonly capabilities?: Partial<Capabilities>
}

export type AgentResult = string | Reply | void

export type AgentContext = RunnerContext
export type AgentQuestion = Question

export function functionRunner(agent: Agent): Runner {
  const { capabilities } = agent
  return {
    capabilities: { ...NO_CAPABILITIES, settings: ['instructions'], ...capabilities },
    // Its memory is the history that it is given. What it binds, it forks itself.
    fork: async () => null,
    async *run(turn, context): AsyncGenerator<RunnerOutput, RunnerResult> {
      const work = agent(turn, context)
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

function replyOf(result: AgentResult): RunnerResult {
  return typeof result === 'string' ? { text: result } : (result ?? undefined)
}

/** Answers with its input unchanged. */
export const echo: Agent = async (turn) => turn.text

/** Streams its input word by word over two seconds, or over the `ms` of the input. */
export const slow: Agent = async function* ({ text, input }, { signal }) {
  const words = text.split(/(?<=\s)/)
  const { ms } = asObject(input)
  const pauseMs = (typeof ms === 'number' && ms >= 0 ? ms : 2_000) / words.length
  for (const word of words) {
    await wait(pauseMs, signal)
    yield word
  }
}

/** Asks for permission before it echoes, and shows what it would do: nothing, in truth. */
const askFirst: Agent = async ({ text }, context) => {
  const outcome = await context.ask({
    kind: 'permission',
    question: `May I say ${JSON.stringify(text)}?`,
    options: ['allow', 'deny'],
    accepts: ['message', 'input'],
    detail: {
      tool: 'say',
      kind: 'execute',
      command: `say ${JSON.stringify(text)}`,
      diff: [{ path: 'said.txt', before: 'nothing yet\n', after: `${text}\n` }],
      reason: 'You have sent it.',
      input: { text },
    },
  })
  if (outcome.outcome !== 'answered') return `I may not: ${outcome.outcome}`
  const { options, message, input } = chosen(outcome.answer)
  if (!options.includes('allow')) return `I may not: ${message ?? 'denied'}`
  const { text: edited } = asObject(input)
  return typeof edited === 'string' ? edited : text
}

export const ask: Agent = Object.assign(askFirst, { capabilities: { asks: true } })
