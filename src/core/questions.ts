/**
 * What a runner asks, and the ask that it makes. An agent may be anybody's code: what it asks is
 * checked, copied and bounded before it is recorded, so that every reader of an ask can rely on it.
 */
import { HoldfastError } from './errors.ts'
import type { Limits } from './limits.ts'
import {
  ANSWER_FORMS,
  TOOL_KINDS,
  type AnswerForm,
  type Ask,
  type AskDetail,
  type AskOption,
  type FileDiff,
  type Grant,
} from './state.ts'
import { asFields } from './turns.ts'

/** What a runner asks. Without options any answer is valid. */
export type Question = {
  readonly kind: string
  readonly question: string
  /** A text is an option that is its own label. */
  readonly options?: readonly (string | AskOption)[]
  readonly timeoutMs?: number
  /**
   * When no client is there that answers this kind: wait for one (the default), or settle at once.
   */
  readonly onNobody?: 'wait' | 'deny'
  readonly data?: unknown
  /** What it is about. What is too large is left out of it. */
  readonly detail?: AskDetail
  /** Answers besides the id of an option. */
  readonly accepts?: readonly AnswerForm[]
  /** Withdraws the ask when it aborts: the agent does not wait for the answer any more. */
  readonly signal?: AbortSignal
}

/** The ask that a question makes. Throws if it is no question, or too large. */
export function askOf(
  asked: Question,
  { turn, at, limits }: { readonly turn: string; readonly at: number; readonly limits: Limits },
): Omit<Ask, 'id'> {
  const { timeoutMs = limits.askMs, onNobody = 'wait', accepts = [] } = asked
  if (!(timeoutMs >= 0)) throw wrong('timeoutMs', 'must be a number of milliseconds')
  const given = jsonOf(asked.data, 'data')
  const whole = {
    turn,
    kind: text(asked.kind, 'kind'),
    question: questionText(asked.question),
    options: asked.options === undefined ? null : list(asked.options, 'options').map(optionOf),
    deadline: at + Math.min(timeoutMs, limits.askMsMax),
    onNobody: oneOf(onNobody, ['wait', 'deny'], 'onNobody'),
    ...(given === undefined ? {} : { data: given }),
    ...(accepts.length === 0 ? {} : { accepts: list(accepts, 'accepts').map(formOf) }),
  }
  checkAskSize('the question', whole, limits)
  const detail = jsonOf(asked.detail, 'detail')
  if (detail === undefined) return whole
  checkDetail(detail)
  const { length } = JSON.stringify(whole)
  return { ...whole, detail: boundDetail(detail as AskDetail, limits.askBytesMax - length) }
}

export function checkAskSize(what: string, value: unknown, { askBytesMax }: Limits): void {
  if (JSON.stringify(value ?? null).length <= askBytesMax) return
  throw new HoldfastError('body_too_large', `${what} is over ${askBytesMax} characters of JSON`)
}

function wrong(field: string, words: string): TypeError {
  return new TypeError(`an ask's ${field} ${words}`)
}

/** A copy, as the log will have it: the agent may change its own. */
function jsonOf(value: unknown, field: string): unknown {
  if (value === undefined) return undefined
  let json: string | undefined
  try {
    json = JSON.stringify(value)
  } catch (error) {
    throw wrong(field, `cannot be written as JSON: ${(error as Error).message.split('\n')[0]}`)
  }
  if (json === undefined) throw wrong(field, 'cannot be written as JSON')
  return JSON.parse(json) as unknown
}

function text(value: unknown, field: string): string {
  if (typeof value === 'string') return value
  throw wrong(field, 'must be a text')
}

/** An agent that asks with something else was always answered: its words are JSON. */
function questionText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(jsonOf(value, 'question')) ?? '')
}

function list(value: unknown, field: string): readonly unknown[] {
  if (Array.isArray(value)) return value as readonly unknown[]
  throw wrong(field, 'must be a list')
}

function oneOf<Value extends string>(
  value: unknown,
  values: readonly Value[],
  field: string,
): Value {
  const found = values.find((one) => one === value)
  if (found !== undefined) return found
  throw wrong(field, `must be one of ${values.join(', ')}`)
}

function formOf(form: unknown, index: number): AnswerForm {
  return oneOf(form, ANSWER_FORMS, `accepts.${index}`)
}

function optionOf(option: unknown, index: number): AskOption {
  if (typeof option === 'string') return { id: option, label: option }
  const { id, label, means, grants = [] } = asFields(option)
  const meaning = ['allow', 'deny'] as const
  const field = `options.${index}`
  const given = list(grants, `${field}.grants`).map((grant, place) =>
    grantOf(grant, `${field}.grants.${place}`),
  )
  return {
    id: text(id, `${field}.id`),
    label: text(label, `${field}.label`),
    ...(means === undefined ? {} : { means: oneOf(means, meaning, `${field}.means`) }),
    ...(given.length === 0 ? {} : { grants: given }),
  }
}

function grantOf(grant: unknown, field: string): Grant {
  const { label, data = null } = asFields(grant)
  return { label: text(label, `${field}.label`), data: jsonOf(data, `${field}.data`) }
}

type Check = (value: unknown, field: string) => unknown

const DETAIL: Readonly<Record<keyof AskDetail, Check>> = {
  ...{ tool: text, command: text, cwd: text, url: text, plan: text, reason: text },
  kind: (value, field) => oneOf(value, TOOL_KINDS, field),
  paths: (value, field) =>
    list(value, field).forEach((path, index) => text(path, `${field}.${index}`)),
  diff: (value, field) =>
    list(value, field).forEach((diff, index) => checkDiff(diff, `${field}.${index}`)),
  input: () => undefined,
  unsandboxed: flag,
  truncated: flag,
}

function flag(value: unknown, field: string): void {
  if (value !== true) throw wrong(field, 'must be true, or be left out')
}

function checkDetail(detail: unknown): void {
  if (typeof detail !== 'object' || detail === null || Array.isArray(detail)) {
    throw wrong('detail', 'must be an object')
  }
  for (const [name, value] of Object.entries(detail)) {
    if (!Object.hasOwn(DETAIL, name)) {
      throw wrong(`detail.${name}`, `is not known; there are: ${Object.keys(DETAIL).join(', ')}`)
    }
    DETAIL[name as keyof AskDetail](value, `detail.${name}`)
  }
}

function checkDiff(diff: unknown, field: string): void {
  const { path, before, after, unified, ...others } = asFields(diff)
  text(path, `${field}.path`)
  const [other] = Object.keys(others)
  if (other !== undefined) throw wrong(`${field}.${other}`, 'is not known')
  if (unified !== undefined) return void text(unified, `${field}.unified`)
  if (before !== null) text(before, `${field}.before`)
  text(after, `${field}.after`)
}

/** How much of each text of a detail that is too large is kept, in characters: less each time. */
const DETAIL_TEXT_CHARS = [16_384, 4_096, 1_024, 128]

/** The detail with the beginnings of its long texts only, if it would be too large with all. */
export function boundDetail(detail: AskDetail, charsMax: number): AskDetail {
  if (JSON.stringify(detail).length <= charsMax) return detail
  for (const textChars of DETAIL_TEXT_CHARS) {
    const bounded = { ...shortened(detail, textChars), truncated: true } as const
    if (JSON.stringify(bounded).length <= charsMax) return bounded
  }
  const { tool, kind } = detail
  return { ...(tool === undefined ? {} : { tool: head(tool, 128) }), ...{ kind }, truncated: true }
}

function shortened({ input, paths, diff, ...texts }: AskDetail, chars: number): AskDetail {
  const entries = Object.entries(texts).map(([name, value]) => [
    name,
    typeof value === 'string' ? head(value, chars) : value,
  ])
  const argumentsText = JSON.stringify(input) ?? ''
  return {
    ...(Object.fromEntries(entries) as AskDetail),
    ...(paths === undefined ? {} : { paths: paths.slice(0, 32).map((path) => head(path, chars)) }),
    ...(diff === undefined ? {} : { diff: diff.slice(0, 8).map((one) => shortDiff(one, chars)) }),
    ...(input === undefined || argumentsText.length > chars ? {} : { input }),
  }
}

function shortDiff(diff: FileDiff, chars: number): FileDiff {
  const path = head(diff.path, chars)
  if ('unified' in diff) return { path, unified: head(diff.unified, chars) }
  const { before, after } = diff
  return { path, before: before === null ? null : head(before, chars), after: head(after, chars) }
}

function head(value: string, chars: number): string {
  return value.length <= chars ? value : `${value.slice(0, chars).toWellFormed()}…`
}
