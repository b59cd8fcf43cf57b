/** Asks of agents at a terminal: how they are shown, and how a person answers them. */
import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import type { Ask } from '../client/index.ts'
import { detailLines } from './ask-detail.ts'
import { linesOf, paintFor, PLAIN, printable } from './output.ts'

/** The answer: an option by number, id or label; any text if the ask has no options. */
export function readAnswer({ options }: Pick<Ask, 'options'>, text: string): unknown {
  const given = text.trim()
  if (options === null) return given === '' ? undefined : given
  const number = /^\d{1,3}$/.test(given) ? options[Number(given) - 1] : undefined
  const same = (name: string): boolean => name.toLowerCase() === given.toLowerCase()
  const named = options.find(({ id }) => id === given) ?? options.find(({ id }) => same(id))
  return (named ?? options.find(({ label }) => same(label)) ?? number)?.id
}

/** What a person needs to know to answer: the question, what it is about, and the options. */
export function describeAsk(
  ask: Pick<Ask, 'question' | 'options' | 'detail'>,
  paint = PLAIN,
): string {
  const { question, options, detail } = ask
  const lines = (options ?? []).map(({ id, label }, index) => {
    const name = id === label ? printable(id) : `${printable(label)} (${printable(id)})`
    return `  ${index + 1}) ${name}`
  })
  const about = detail === undefined ? [] : detailLines(detail, paint)
  return [
    `? ${linesOf(question).join('\n  ')}`,
    ...about.map((line) => `  ${line}`),
    ...lines,
  ].join('\n')
}

/**
 * Prompts a person at the terminal until any client has answered the ask. Resolves with the answer;
 * undefined if the ask was settled meanwhile, or the person gave none (Ctrl-D).
 */
export async function askPerson(
  { input, output, onInterrupt }: { input: Readable; output: Writable; onInterrupt: () => void },
  ask: Ask,
  settled: AbortSignal,
): Promise<unknown> {
  const reader = createInterface({ input, output })
  reader.on('SIGINT', onInterrupt)
  const over = new AbortController()
  const end = (words: string) => (): void => {
    if (over.signal.aborted) return
    // Written before the agent's next output. The reader ends the line by itself.
    over.abort()
    output.write(`${words}\n`)
  }
  const [gaveUp, withdrawn] = [end('(not answered here)'), end('(no longer asked)')]
  reader.once('close', gaveUp)
  settled.addEventListener('abort', withdrawn)
  try {
    output.write(`\n${describeAsk(ask, paintFor(output))}\n`)
    for (;;) {
      const answer = readAnswer(ask, await reader.question('> ', { signal: over.signal }))
      if (answer !== undefined) return answer
      output.write('please answer with one of the above\n')
    }
  } catch (error) {
    if (!over.signal.aborted) throw error
    return undefined
  } finally {
    settled.removeEventListener('abort', withdrawn)
    reader.off('close', gaveUp).close()
  }
}
