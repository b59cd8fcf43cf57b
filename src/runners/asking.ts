/**
 * The questions of agents: permission requests and forms become asks. Where no person answers, the
 * agent and the log are told why, and how to answer such requests.
 */
import { createHash } from 'node:crypto'
import {
  chosen,
  type AskOption,
  type AskOutcome,
  type Choice,
  type Grant,
  type Question,
  type RunnerContext,
} from '../core/index.ts'
import { asList, asObject, asText, type JsonObject } from './json.ts'

/** A question, and the label of an option, in characters. */
export const ASK_TEXT_CHARS_MAX = 2_000
/** How many options are passed on, and how many fields of a form are asked for. */
export const ASK_OPTIONS_MAX = 16

/** How the operator wants an agent's requests to be asked. */
export type AskSettings = {
  readonly askMs?: number
  readonly onNobody?: 'wait' | 'deny'
}

export type Ask = (question: Question) => Promise<AskOutcome>

/** `words`: why no person has answered. */
type OnUnanswered = (words: string, question: Question) => void

/** Asks as the operator wants it. An ask that cannot be made counts as withdrawn. */
export function askFor(
  context: RunnerContext,
  { askMs, onNobody }: AskSettings,
  onUnanswered: OnUnanswered = () => undefined,
): Ask {
  return async (question) => {
    try {
      const outcome = await context.ask({
        ...question,
        question: shortened(question.question),
        ...(askMs === undefined ? {} : { timeoutMs: askMs }),
        ...(onNobody === undefined ? {} : { onNobody }),
      })
      const words = unansweredWords(outcome, context)
      if (words !== null) onUnanswered(words, question)
      return outcome
    } catch {
      // The turn has ended, or too many asks are open: nothing was allowed.
      return { outcome: 'withdrawn' }
    }
  }
}

/** Why no person has answered, and how to; null: one has, or the request was withdrawn. */
export function unansweredWords(
  { outcome }: AskOutcome,
  { session: { key, id } }: RunnerContext,
): string | null {
  if (outcome === 'answered' || outcome === 'withdrawn') return null
  const why =
    outcome === 'timed_out'
      ? 'No person has answered this request in time, so it is denied.'
      : 'No person is there to answer this request, so it is denied.'
  return `${why} To answer such requests, use "holdfast chat ${key ?? id}" or the inspector.`
}

/** A command that is a list of words as one line, which a shell would read as those words. */
export function shellLine(words: readonly unknown[]): string {
  return words
    .map(String)
    .map((word) =>
      /^[\w.,:/@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`,
    )
    .join(' ')
}

/** The label of a grant, in characters. */
const GRANT_CHARS_MAX = 200

/**
 * A grant of a request that an agent may make again: an agent keeps in mind itself what it was
 * allowed, but forgets it when it is started again.
 */
export function grantOf(label: string, request: unknown): Grant {
  const digest = createHash('sha256').update(JSON.stringify(request)).digest('hex')
  return { label: label.slice(0, GRANT_CHARS_MAX).toWellFormed(), data: { request: digest } }
}

/** Whether a person has allowed this very request before, in this session. */
export function isGranted({ session }: RunnerContext, { data }: Grant): boolean {
  const { request } = asObject(data)
  return session.grants.some((grant) => asObject(grant.data)['request'] === request)
}

export function shortened(text: string): string {
  return text.slice(0, ASK_TEXT_CHARS_MAX).toWellFormed()
}

/** What a person answered; null if none did. */
export function choiceOf(outcome: AskOutcome): Choice | null {
  return outcome.outcome === 'answered' ? chosen(outcome.answer) : null
}

/** The answer to a form, as MCP and ACP define it. */
export type FormAnswer =
  | { readonly action: 'accept'; readonly content: JsonObject }
  | { readonly action: 'decline' | 'cancel' }

/** Asks for the fields of a form one after the other. */
export async function askForm(ask: Ask, message: string, schema: unknown): Promise<FormAnswer> {
  const { properties, required } = asObject(schema)
  const fields = fieldsOf(asObject(properties), asList(required))
  if (fields.length === 0) return askConsent(ask, message)
  if (fields.length > ASK_OPTIONS_MAX) return { action: 'decline' }
  const content: Record<string, unknown> = {}
  for (const field of fields) {
    const value = await askField(ask, message, field)
    if (value === undefined && asList(required).includes(field.name)) return { action: 'cancel' }
    Object.assign(content, value)
  }
  const isEmpty = Object.keys(content).length === 0
  return isEmpty ? { action: 'cancel' } : { action: 'accept', content }
}

/** A form without fields asks for consent, as for the call of a tool of an MCP server. */
async function askConsent(ask: Ask, message: string): Promise<FormAnswer> {
  const question = message === '' ? 'May the agent continue?' : message
  const outcome = await ask({ kind: 'permission', question, options: [ALLOW, DENY] })
  const choice = choiceOf(outcome)
  if (choice === null) return { action: 'cancel' }
  return choice.options[0] === ALLOW.id ? { action: 'accept', content: {} } : { action: 'decline' }
}

export const ALLOW: AskOption = { id: 'allow', label: 'Allow' }
export const ALLOW_ALWAYS: AskOption = { id: 'allow_always', label: 'Allow for this session' }
export const DENY: AskOption = { id: 'deny', label: 'Deny' }

type FormField = {
  readonly name: string
  readonly field: JsonObject
  /** The field of the same form that takes own words instead of an option. */
  readonly ownWords: string | null
}

/** How claude-agent-acp names the field for own words beside a choice. */
const OWN_WORDS = '_custom'

/** What is asked for, one by one: a choice and the field for own words beside it are one. */
function fieldsOf(properties: JsonObject, required: readonly unknown[]): readonly FormField[] {
  const ownWordsOf = (name: string): string | null => {
    const own = asObject(properties[name + OWN_WORDS])
    const isChoice = fieldOptions(asObject(properties[name])) !== null
    const isOptional = own['type'] === 'string' && !required.includes(name + OWN_WORDS)
    return isChoice && isOptional && fieldOptions(own) === null ? name + OWN_WORDS : null
  }
  const fields = Object.entries(properties).map(([name, field]) => {
    return { name, field: asObject(field), ownWords: ownWordsOf(name) }
  })
  const besides = new Set(fields.map(({ ownWords }) => ownWords))
  return fields.filter(({ name }) => !besides.has(name))
}

/** The value of one field, by the name that it belongs to; undefined if none was given. */
async function askField(ask: Ask, message: string, { name, field, ownWords }: FormField) {
  const { title, description, type } = field
  const words = [message, asText(title) || name, asText(description)].filter((one) => one !== '')
  const options = fieldOptions(field)
  const accepts: NonNullable<Question['accepts']> = [
    ...(type === 'array' ? (['several'] as const) : []),
    ...(ownWords === null ? [] : (['text'] as const)),
  ]
  const outcome = await ask({
    kind: 'question',
    question: [...new Set(words)].join('\n'),
    ...(options === null ? {} : { options }),
    ...(accepts.length === 0 ? {} : { accepts }),
  })
  if (outcome.outcome !== 'answered') return undefined
  const { answer } = outcome
  const { text } = chosen(answer)
  if (ownWords !== null && text !== null) return { [ownWords]: text }
  const value = options === null ? freeValue(answer, type) : chosenValue(answer, type)
  return value === undefined ? undefined : { [name]: value }
}

/** Null: the field takes any text or number. */
function fieldOptions(field: JsonObject): readonly AskOption[] | null {
  if (field['type'] === 'boolean') {
    return ['true', 'false'].map((id) => ({ id, label: id === 'true' ? 'Yes' : 'No' }))
  }
  const items = field['type'] === 'array' ? asObject(field['items']) : field
  const named = asList(items['oneOf'] ?? items['anyOf']).map(asObject)
  const values = asList(items['enum'])
  const names = asList(items['enumNames'])
  const options =
    named.length > 0
      ? named.map(({ const: id, title }) => ({
          id: asText(id),
          label: asText(title) || asText(id),
        }))
      : values.map((id, index) => ({ id: asText(id), label: asText(names[index]) || asText(id) }))
  const shown = options.filter(({ id }) => id !== '').slice(0, ASK_OPTIONS_MAX)
  if (shown.length === 0) return null
  return shown.map(({ id, label }) => ({ id, label: shortened(label) }))
}

function chosenValue(answer: unknown, type: unknown): unknown {
  const { options } = chosen(answer)
  if (type === 'array') return options
  return type === 'boolean' ? options[0] === 'true' : options[0]
}

function freeValue(answer: unknown, type: unknown): unknown {
  const value = typeof answer === 'object' ? asObject(answer)['text'] : answer
  const text = typeof value === 'string' || typeof value === 'number' ? String(value) : null
  if (text === null) return undefined
  if (type !== 'number' && type !== 'integer') return text
  return Number.isFinite(Number(text)) ? Number(text) : undefined
}
