/** Asks of agents at a terminal: how they are shown, and how a person answers them. */
import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import type { Ask } from '../client/index.ts'
import { objectIn } from '../wire/answers.ts'
import { detailLines } from './ask-detail.ts'
import { linesOf, paintFor, PLAIN, printable, printableJson } from './output.ts'

/** Typed alone, it lets the person change the arguments of what is asked. */
const EDIT = 'edit'

type AnswerableAsk = Pick<Ask, 'options' | 'accepts' | 'detail'>

type NamedAsk = {
  readonly id: string
  readonly session: { readonly id: string; readonly key: string | null }
}

/** What `holdfast answer` takes: the session and the ask. A key that needs no quotes is shown. */
export function askName({ id, session }: NamedAsk): string {
  const { key } = session
  return `${key !== null && /^[\w:.@-]+$/.test(key) ? key : session.id}/${id}`
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

/**
 * A typed line as the answer, in every form that the ask accepts: an option, with words for the
 * agent or other arguments as JSON behind it; several options; a text of one's own. Undefined if it
 * is none of them.
 */
export function readTypedAnswer(ask: AnswerableAsk, line: string): unknown {
  const { options, accepts = [] } = ask
  const given = line.trim()
  const option = readAnswer(ask, given)
  if (option !== undefined || options === null || given === '') return option
  const words = given.split(/[\s,]+/).map((word) => readAnswer(ask, word))
  if (accepts.includes('several') && words.every((word) => word !== undefined)) return words
  const [, name = '', message = ''] = /^(\S+?):?\s+(.+)$/s.exec(given) ?? []
  const chosen = name === '' ? undefined : readAnswer(ask, name)
  if (accepts.includes('input') && chosen !== undefined && message.startsWith('{')) {
    // Arguments with a mistake must not become words beside those that were to be replaced.
    const input = objectIn(message)
    return input === null ? undefined : { option: chosen, input }
  }
  if (accepts.includes('message') && chosen !== undefined) return { option: chosen, message }
  return accepts.includes('text') ? { text: given } : undefined
}

/** The line that a person edits after `edit`, as the answer with other arguments; null: none. */
export function lineToEdit(ask: AnswerableAsk, line: string): string | null {
  if (line.trim().toLowerCase() !== EDIT || readAnswer(ask, line) !== undefined) return null
  const { options, detail } = ask
  if (!isEditable(ask) || options === null) return null
  return `${printable(options[0]?.id ?? '')} ${printableJson(JSON.stringify(detail?.input))}`
}

/** Whether it has arguments that an answer may replace. */
function isEditable({ accepts = [], detail }: AnswerableAsk): boolean {
  return accepts.includes('input') && detail?.input !== undefined
}

/** How to answer, where more than an option is possible. `mayEdit`: this person may edit. */
export function answerHint(ask: AnswerableAsk, mayEdit = false): string | null {
  const { options, accepts = [] } = ask
  if (options === null) return null
  const edit = mayEdit && isEditable(ask) ? `; ${EDIT} changes the arguments` : ''
  if (edit === '' && accepts.every((form) => form === 'input')) return null
  const several = accepts.includes('several') ? ', or several' : ''
  const message = accepts.includes('message') ? ', then words for the agent if you like' : ''
  const text = accepts.includes('text') ? ', or your own words' : ''
  return `(a number or a name${several}${message}${text}${edit})`
}

/** What a person needs to know to answer: the question, what it is about, and the options. */
export function describeAsk(
  ask: Pick<Ask, 'question' | 'options' | 'detail' | 'accepts'>,
  paint = PLAIN,
  mayEdit = false,
): string {
  const { question, options, detail } = ask
  const lines = (options ?? []).map(({ id, label }, index) => {
    const name = id === label ? printable(id) : `${printable(label)} (${printable(id)})`
    return `  ${index + 1}) ${name}`
  })
  const hint = answerHint(ask, mayEdit)
  const about = detail === undefined ? [] : detailLines(detail, paint)
  return [
    `? ${linesOf(question).join('\n  ')}`,
    ...about.map((line) => `  ${line}`),
    ...lines,
    ...(hint === null ? [] : [`  ${hint}`]),
  ].join('\n')
}

type AskedPerson = {
  readonly input: Readable
  readonly output: Writable
  readonly onInterrupt: () => void
  readonly mayEdit?: boolean
}

/**
 * Prompts a person at the terminal until any client has answered the ask. Resolves with the answer;
 * undefined if the ask was settled meanwhile, or the person gave none (Ctrl-D).
 */
export async function askPerson(
  { input, output, onInterrupt, mayEdit = false }: AskedPerson,
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
    output.write(`\n${describeAsk(ask, paintFor(output), mayEdit)}\n`)
    for (let edited: string | null = null; ;) {
      const typed = reader.question('> ', { signal: over.signal })
      if (edited !== null) reader.write(edited)
      const line = await typed
      const answer = readTypedAnswer(ask, line)
      if (answer !== undefined) return answer
      edited = lineToEdit(ask, line)
      if (edited === null) output.write('please answer with one of the above\n')
    }
  } catch (error) {
    if (!over.signal.aborted) throw error
    return undefined
  } finally {
    settled.removeEventListener('abort', withdrawn)
    reader.off('close', gaveUp).close()
  }
}
