/**
 * An agent's question at the prompt: shown to a person, who answers it, if nobody else does first.
 */
import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import type { Ask } from '../client/index.ts'
import { printable } from './sessions.ts'

export type Terminal = {
  readonly input: Readable
  readonly output: Writable
  /** Ctrl-C while a question waits. */
  readonly onInterrupt: () => void
}

/** What can be answered: an option by its number, its id or its label; without options anything. */
export function readAnswer({ options }: Pick<Ask, 'options'>, text: string): unknown {
  const said = text.trim()
  if (options === null) return said === '' ? undefined : said
  const number = /^\d{1,3}$/.test(said) ? options[Number(said) - 1] : undefined
  const same = (name: string): boolean => name.toLowerCase() === said.toLowerCase()
  const named = options.find(({ id }) => id === said) ?? options.find(({ id }) => same(id))
  return (named ?? options.find(({ label }) => same(label)) ?? number)?.id
}

export function describeAsk({ question, options }: Pick<Ask, 'question' | 'options'>): string {
  const lines = (options ?? []).map(({ id, label }, index) => {
    const name = id === label ? printable(id) : `${printable(label)} (${printable(id)})`
    return `  ${index + 1}) ${name}`
  })
  return [`? ${question.split('\n').map(printable).join('\n  ')}`, ...lines].join('\n')
}

/** The person's answer; undefined if it was settled meanwhile, or the person has none (Ctrl-D). */
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
    // At once: what the agent says next comes after it. The reader ends the line by itself.
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
