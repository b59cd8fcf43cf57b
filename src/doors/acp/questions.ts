/**
 * Asks as requests to a client: a permission, or an elicitation where only a form can have the
 * answer. Not every client can be asked everything.
 */
import type { Ask, AskDetail, AskOption, FileDiff } from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { textBlock } from './content.ts'

/** The kinds of ask that an ACP client answers. */
export const ASK_KINDS = ['permission', 'question', 'choice'] as const

export type ClientQuestion = {
  readonly method: 'session/request_permission' | 'elicitation/create'
  readonly params: object
}

/** What a client takes besides permission requests. */
export type AskedClient = { readonly takesForms: boolean }

/** Null: this client cannot be asked that. */
export function questionFor(
  sessionId: string,
  ask: Ask,
  { takesForms }: AskedClient,
): ClientQuestion | null {
  const isForm = ask.options === null ? ask.kind !== 'permission' : ask.kind === 'question'
  const meta = { _meta: { holdfast: { ask: ask.id, turn: ask.turn, kind: ask.kind } } }
  if (isForm && takesForms) {
    const { question: message } = ask
    const params = { sessionId, mode: 'form', message, requestedSchema: formOf(ask), ...meta }
    return { method: 'elicitation/create', params }
  }
  if (isForm && ask.options === null) return null
  const options = (ask.options ?? YES_OR_NO).map((option) => permissionOption(ask, option))
  const toolCall = toolCallOf(ask)
  return { method: 'session/request_permission', params: { sessionId, toolCall, options, ...meta } }
}

/** Of a permission that takes any answer. */
const YES_OR_NO: readonly AskOption[] = [
  { id: 'allow', label: 'Allow' },
  { id: 'deny', label: 'Deny' },
]

function permissionOption({ data }: Ask, { id, label }: AskOption): object {
  const kinds = isRecord(data) && isRecord(data['kinds']) ? data['kinds'] : {}
  const known = kinds[id]
  return { optionId: id, name: label, kind: typeof known === 'string' ? known : kindOf(id) }
}

/** Editors show an option by its kind; agents that have none name it in its id. */
function kindOf(id: string): string {
  const isAlways = /always|session|forever/i.test(id)
  if (/deny|reject|refuse|decline|cancel|^no\b/i.test(id)) {
    return isAlways ? 'reject_always' : 'reject_once'
  }
  return isAlways ? 'allow_always' : 'allow_once'
}

function toolCallOf({ id, question, detail = {}, data }: Ask): object {
  const tool = isRecord(data) && isRecord(data['tool']) ? data['tool']['id'] : undefined
  const { kind, input, paths = [] } = detail
  return {
    toolCallId: typeof tool === 'string' ? tool : id,
    title: question,
    status: 'pending',
    ...(kind === undefined ? {} : { kind }),
    ...(input === undefined ? {} : { rawInput: input }),
    content: contentOf(detail),
    locations: paths.map((path) => ({ path })),
  }
}

/** What a person needs to decide: what is to be run, and what it changes. */
function contentOf({ command, cwd, url, plan, reason, diff = [] }: AskDetail): readonly object[] {
  const words = [
    command === undefined ? '' : `\`\`\`\n${command}\n\`\`\``,
    cwd === undefined ? '' : `in ${cwd}`,
    ...[url, plan, reason].map((text) => text ?? ''),
  ].filter((text) => text !== '')
  const texts = words.length === 0 ? [] : [textContent(words.join('\n\n'))]
  return [...texts, ...diff.map(diffContent)]
}

function textContent(text: string): object {
  return { type: 'content', content: textBlock(text) }
}

export function diffContent(diff: FileDiff): object {
  if ('unified' in diff) return textContent(`${diff.path}\n${diff.unified}`)
  const { path, before, after } = diff
  return { type: 'diff', path, oldText: before, newText: after }
}

/** One field for an option, and one for words of one's own where the ask takes them. */
function formOf({ options, accepts = [] }: Ask): object {
  if (options === null) {
    return { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
  }
  const values = options.map(({ id, label }) => ({ const: id, title: label }))
  const answer = accepts.includes('several')
    ? { type: 'array', items: { anyOf: values } }
    : { type: 'string', oneOf: values }
  if (!accepts.includes('text')) {
    return { type: 'object', properties: { answer }, required: ['answer'] }
  }
  const text = { type: 'string', title: 'Or in your own words' }
  return { type: 'object', properties: { answer, text } }
}

/** The answer that a client's response is; undefined: it is none. */
export function answerIn({ options }: Ask, result: unknown): unknown {
  if (!isRecord(result)) return undefined
  const { outcome, action, content } = result
  if (isRecord(outcome)) {
    return outcome['outcome'] === 'selected' ? outcome['optionId'] : undefined
  }
  if (action !== 'accept' || !isRecord(content)) return undefined
  const { answer, text } = content
  if (answer !== undefined || text === undefined) return answer
  return options === null ? text : { text }
}
