/** The built-in agents, for trials and tests. */
import type { Input } from '../core/index.ts'
import { wait } from '../platform/abort.ts'
import type { Agent } from './function.ts'

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
