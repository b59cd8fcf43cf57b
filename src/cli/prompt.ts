/** Prompts a person at the terminal for the answer to an ask, until any client has answered it. */
import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import type { Ask } from '../client/index.ts'
import { printable } from './output.ts'

type Terminal = {
  readonly input: Readable
  readonly output: Writable
  /** Ctrl-C at the prompt. */
  readonly onInterrupt: () => void
}

/** The answer: an option by number, id or label; any text if the ask has no options. */
export function readAnswer({ options }: Pick<Ask, 'options'>, text: string): unknown {
  const given = text.trim()
  if (options === null) return given === '' ? undefined : given
  const number = /^\d{1,3}$/.test(given) ? options[Number(given) - 1] : undefined
  const same = (name: string): boolean => name.toLowerCase() === given.toLowerCase()
  const named = options.find(({ id }) => id === given) ?? options.find(({ id }) => same(id))
  return (named ?? options.find(({ label }) => same(label)) ?? number)?.id
}

export function describeAsk({ question, options }: Pick<Ask, 'question' | 'options'>): string {
  const lines = (options ?? []).map(({ id, label }, index) => {
    const name = id === label ? printable(id) : `${printable(label)} (${printable(id)})`
    return `  ${index + 1}) ${name}`
  })
  return [`? ${question.split('\n').map(printable).join('\n  ')}`, ...lines].join('\n')
}

/** The answer; undefined if the ask was settled meanwhile, or the person gave none (Ctrl-D). */
export async function askPerson(
  { input, output, onInterrupt }: Terminal,
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
    output.write(`\n${describeAsk(ask)}\n`)
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
