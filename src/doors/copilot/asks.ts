/**
 * Asks as the Copilot SDK has them: permission requests, questions to the user, and calls of tools
 * that a client has registered. What clients answer becomes an answer to the ask.
 */
import {
  calledTool,
  invalid,
  type Ask,
  type AskDetail,
  type SessionEvent,
} from '../../core/index.ts'
import { isRecord } from '../../schema/contract.ts'
import { diffLines } from '../../wire/diff-lines.ts'
import type { CopilotEventType } from './event-table.ts'

type Drafted = readonly [type: CopilotEventType, data: object]
type Settled = Extract<SessionEvent, { type: 'ask.settled' }>

/** The kinds of ask that a client answers, besides its tools. */
export const PERMISSION_KINDS = ['permission'] as const
export const QUESTION_KINDS = ['question', 'choice'] as const

type AskSort = 'permission' | 'question' | 'tool' | null

/** As what clients are asked; null: these clients are not. */
export function sortOf({ kind }: Pick<Ask, 'kind'>): AskSort {
  if (kind === 'permission') return 'permission'
  if (calledTool(kind) !== null) return 'tool'
  return QUESTION_KINDS.some((known) => known === kind) ? 'question' : null
}

/** What clients are told of an ask that waits; null: it is not for them. */
export function requestEvent(ask: Ask, session: string): Drafted | null {
  const { id: requestId } = ask
  switch (sortOf(ask)) {
    case 'permission':
      return ['permission.requested', { requestId, permissionRequest: permissionOf(ask) }]
    case 'question':
      return ['user_input.requested', { requestId, ...questionOf(ask) }]
    case 'tool':
      return ['external_tool.requested', { requestId, sessionId: session, ...toolCallOf(ask) }]
    case null:
      return null
  }
}

/** `ask`: as it was opened. */
export function askSettled(event: Settled, ask: Ask): readonly Drafted[] {
  const { ask: requestId } = event
  switch (sortOf(ask)) {
    case 'permission':
      return [['permission.completed', { requestId, result: resultOf(event, ask) }]]
    case 'question': {
      const answer = event.outcome === 'answered' ? wordsOf(event.answer) : undefined
      const words = answer === undefined ? {} : { answer }
      return [['user_input.completed', { requestId, ...words }]]
    }
    case 'tool':
      return [['external_tool.completed', { requestId }]]
    case null:
      return []
  }
}

function resultOf(event: Settled, ask: Ask): object {
  if (event.outcome === 'withdrawn') return { kind: 'cancelled' }
  if (event.outcome !== 'answered') {
    return { kind: 'denied-no-approval-rule-and-could-not-request-from-user' }
  }
  const isDenial = meaningOf(ask, wordsOf(event.answer) ?? '').startsWith('deny')
  return { kind: isDenial ? 'denied-interactively-by-user' : 'approved' }
}

function wordsOf(answer: unknown): string | undefined {
  if (typeof answer === 'string') return answer
  if (!isRecord(answer)) return undefined
  const { option, text } = answer
  return [option, text].find((words) => typeof words === 'string')
}

/** What the SDK calls a permission request, by what the ask is about. */
function permissionOf({ question, detail = {} }: Ask): object {
  const intention = detail.reason ?? question
  const { kind, command, url, paths = [], diff = [], tool, input } = detail
  const [path = diff[0]?.path] = paths
  if (command !== undefined) return { ...shellOf(detail), fullCommandText: command, intention }
  if (kind === 'edit' && path !== undefined) {
    const change = diff.flatMap((one) => [`--- ${one.path}`, ...diffLines(one)]).join('\n')
    const offer = { canOfferSessionApproval: false }
    return { kind: 'write', fileName: path, diff: change, intention, ...offer }
  }
  if (kind === 'read' && path !== undefined) return { kind: 'read', path, intention }
  if (url !== undefined) return { kind: 'url', url, intention }
  const args = input === undefined ? {} : { args: input }
  return { kind: 'custom-tool', toolName: tool ?? 'tool', toolDescription: question, ...args }
}

function shellOf({ paths = [], command = '' }: AskDetail): object {
  const [identifier = command] = command.trim().split(/\s/, 1)
  return {
    kind: 'shell',
    commands: [{ identifier, readOnly: false }],
    possiblePaths: paths,
    possibleUrls: [],
    // The server does not parse commands.
    hasWriteFileRedirection: command.includes('>'),
    canOfferSessionApproval: false,
  }
}

/** What the SDK asks its user; choices are the labels of the options. */
export function questionOf({ question, options, accepts = [] }: Ask) {
  const choices = options?.map(({ label }) => label)
  const allowFreeform = options === null || accepts.includes('text')
  return { question, ...(choices === undefined ? {} : { choices }), allowFreeform }
}

function toolCallOf({ id, kind, detail = {} }: Ask): object {
  const { input } = detail
  const args = input === undefined ? {} : { arguments: input }
  return { toolCallId: id, toolName: calledTool(kind), ...args }
}

/** What a decision of the SDK means for an ask with options. */
export type Decision = { readonly kind: string; readonly feedback?: string | undefined }

/** What a decision may stand for, the best first. All that are no approvals deny. */
const DECISIONS: Readonly<Record<string, readonly Meaning[]>> = {
  'approve-once': ['allow'],
  approved: ['allow'],
  // Wider than once: the same as once, unless the ask offers more.
  'approve-for-session': ['allow_always', 'allow'],
  'approve-for-location': ['allow_always', 'allow'],
  'approve-permanently': ['allow_always', 'allow'],
  'approved-for-session': ['allow_always', 'allow'],
  'approved-for-location': ['allow_always', 'allow'],
}
const DENIAL: readonly Meaning[] = ['deny', 'deny_always']

export function permissionAnswer(ask: Ask, { kind, feedback }: Decision): unknown {
  const { options, accepts = [] } = ask
  const meanings = Object.hasOwn(DECISIONS, kind) ? (DECISIONS[kind] ?? DENIAL) : DENIAL
  if (options === null) return meanings[0] === 'deny' ? 'deny' : 'allow'
  const found = meanings.map((meaning) => options.find(({ id }) => meaningOf(ask, id) === meaning))
  const option = found.find((one) => one !== undefined)
  if (option === undefined) {
    const ids = options.map(({ id }) => id).join(', ')
    throw invalid('result.kind', `matches none of what this request can be answered with: ${ids}`)
  }
  const hasWords = feedback !== undefined && feedback !== '' && accepts.includes('message')
  return hasWords ? { option: option.id, message: feedback } : option.id
}

type Meaning = 'allow' | 'allow_always' | 'deny' | 'deny_always'

const APPROVAL = /^(allow|approve|accept|yes|ok)(?![a-z])/i
const REFUSAL = /^(deny|reject|decline|cancel|no)(?![a-z])/i
const ALWAYS = /always|session|permanent/i

/** Of an option by its id, or by what an agent of ACP says of it; empty: it is not known. */
function meaningOf({ data }: Ask, id: string): Meaning | '' {
  const kinds = isRecord(data) ? data['kinds'] : undefined
  const kind = isRecord(kinds) && Object.hasOwn(kinds, id) ? kinds[id] : id
  const word = typeof kind === 'string' ? kind : id
  const meaning = REFUSAL.test(word) ? 'deny' : APPROVAL.test(word) ? 'allow' : ''
  return meaning !== '' && ALWAYS.test(word) ? `${meaning}_always` : meaning
}

/** The answer to a question: the option of that label, or the words if the ask takes them. */
export function questionAnswer({ options, accepts = [] }: Ask, words: string): unknown {
  if (options === null) return words
  const option = options.find(({ id, label }) => label === words || id === words)
  if (option !== undefined) return option.id
  if (accepts.includes('text')) return { text: words }
  const labels = options.map(({ label }) => JSON.stringify(label)).join(', ')
  throw invalid('answer', `must be one of ${labels}`)
}
