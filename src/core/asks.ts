/** Asks: questions from a session to its clients. Every one gets exactly one outcome (I8). */
import type { AskCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { AskEvent, Draft } from './events.ts'
import { STATE_LIMITS, type Limits } from './limits.ts'
import {
  ANSWER_FORMS,
  type AnswerForm,
  type Ask,
  type AskDetail,
  type AskOption,
  type AskOutcome,
  type Attachment,
  type FileDiff,
  type Folding,
  type Session,
} from './state.ts'

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

/** The ask that a question makes. Throws if it is too large. */
export function askOf(
  asked: Question,
  { turn, at, limits }: { readonly turn: string; readonly at: number; readonly limits: Limits },
): Omit<Ask, 'id'> {
  const { kind, question, timeoutMs, onNobody = 'wait', data, accepts = [] } = asked
  const options = asked.options?.map(optionOf) ?? null
  const deadline = at + Math.min(timeoutMs ?? limits.askMs, limits.askMsMax)
  const ask = { turn, kind, question, options, deadline, onNobody }
  const wrong = accepts.find((form) => !ANSWER_FORMS.includes(form))
  if (wrong !== undefined) throw new TypeError(`an ask cannot accept ${wrong}`)
  const whole = {
    ...ask,
    ...(data === undefined ? {} : { data }),
    ...(accepts.length === 0 ? {} : { accepts }),
  }
  checkAskSize('the question', whole, limits)
  if (asked.detail === undefined) return whole
  const { length } = JSON.stringify(whole)
  return { ...whole, detail: boundDetail(asked.detail, limits.askBytesMax - length) }
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

function head(text: string, chars: number): string {
  return text.length <= chars ? text : `${text.slice(0, chars).toWellFormed()}…`
}

function optionOf(option: string | AskOption): AskOption {
  return typeof option === 'string' ? { id: option, label: option } : option
}

export function checkAskSize(what: string, value: unknown, { askBytesMax }: Limits): void {
  if (JSON.stringify(value ?? null).length <= askBytesMax) return
  throw new HoldfastError('body_too_large', `${what} is over ${askBytesMax} characters of JSON`)
}

export function decideAsk(session: Session, command: AskCommand, moment: Moment): readonly Draft[] {
  switch (command.type) {
    case 'ask':
      return openAsk(session, command.ask, moment)
    case 'answer':
      return answerAsk(session, command)
    case 'timeout': {
      const ask = session.asks.find(({ id }) => id === command.ask)
      if (ask === undefined) return []
      // In a process that stood still the deadline may be heard of before the last client's end.
      const atDeadline = { ...moment, at: ask.deadline }
      const outcome = isUnanswerable(session.attachments, atDeadline)(ask)
        ? 'nobody_to_ask'
        : 'timed_out'
      return [settled(ask, { outcome })]
    }
    case 'unanswerable': {
      const at = Math.max(moment.at, command.at)
      return settleUnanswerable(session, session.attachments, { ...moment, at })
    }
    case 'withdraw':
      return withdrawAsks(session, command.turn, command.ask)
  }
}

function openAsk(session: Session, ask: Omit<Ask, 'id'>, moment: Moment): readonly Draft[] {
  if (session.running?.id !== ask.turn) {
    throw new HoldfastError(
      'turn_over',
      `turn ${ask.turn} does not run: nothing waits for the answer`,
    )
  }
  if (session.asks.length >= STATE_LIMITS.asksMax) {
    throw new HoldfastError(
      'too_many',
      `session ${session.id} has ${session.asks.length} open asks`,
    )
  }
  const id = `a${session.seq + 1}`
  const opened: Draft = { type: 'ask.opened', ask: id, ...ask }
  const isDenied = isUnanswerable(session.attachments, moment)(ask)
  return isDenied
    ? [opened, settled({ id, turn: ask.turn }, { outcome: 'nobody_to_ask' })]
    : [opened]
}

function answerAsk(
  session: Session,
  { ask: id, answer, by, attachment, mayEdit = false }: AskCommand & { type: 'answer' },
): readonly Draft[] {
  const ask = session.asks.find((open) => open.id === id)
  if (ask === undefined) throw settledOrUnknown(session, id)
  checkAnswer(ask, answer)
  if (ask.options !== null && chosen(answer).input !== undefined && !mayEdit) {
    throw new HoldfastError('forbidden', 'to answer with edited arguments needs the scope edit')
  }
  const via = attachment === null ? {} : { attachment }
  return [settled(ask, { outcome: 'answered', answer, by, ...via })]
}

/** What an answer says, in whichever form it was given. */
export type Choice = {
  readonly options: readonly string[]
  /** Words for the agent. */
  readonly message: string | null
  /** The arguments to use instead; undefined: as they are. */
  readonly input: unknown
  /** An answer in the person's own words. */
  readonly text: string | null
}

/** Reads an answer to an ask that has options. */
export function chosen(answer: unknown): Choice {
  if (Array.isArray(answer)) return { options: answer, message: null, input: undefined, text: null }
  if (typeof answer !== 'object' || answer === null) {
    return { options: [answer as string], message: null, input: undefined, text: null }
  }
  const { option, message = null, input, text = null } = answer as Readonly<Record<string, unknown>>
  const options = option === undefined ? [] : [option as string]
  return { options, message: message as string | null, input, text: text as string | null }
}

/** Throws unless the answer is an option, or has a form that the ask accepts. */
function checkAnswer({ options, accepts = [] }: Ask, answer: unknown): void {
  if (options === null) return
  const { options: given, message, text } = chosen(answer)
  const isKnown = given.every((id) => options.some((option) => option.id === id))
  const isOwnText = accepts.includes('text') && typeof text === 'string'
  const isEnough = Array.isArray(answer) ? accepts.includes('several') : given.length > 0
  if (!isKnown || !(isEnough || isOwnText)) {
    const ids = options.map(({ id }) => JSON.stringify(id)).join(', ')
    throw new HoldfastError('invalid_answer', `answer must be one of ${ids}`)
  }
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return
  const fields: readonly string[] = ['option', ...accepts]
  const wrong = Object.keys(answer).find((field) => !fields.includes(field))
  if (wrong !== undefined) {
    throw new HoldfastError('invalid_answer', `an answer to this ask has no ${wrong}`)
  }
  if ([message, text].every((words) => words === null || typeof words === 'string')) return
  throw new HoldfastError('invalid_answer', 'message and text must be texts')
}

/** Ids grow with the log: one that it has passed may have been an ask, which only it can tell. */
function settledOrUnknown(session: Session, id: string): HoldfastError {
  const seq = /^a[1-9]\d{0,14}$/.test(id) ? Number(id.slice(1)) : Number.POSITIVE_INFINITY
  return seq <= session.seq
    ? new HoldfastError('ask_settled', `ask ${id} is settled`)
    : askUnknown(session.id, id)
}

export function askUnknown(session: string, ask: string): HoldfastError {
  return new HoldfastError('ask_unknown', `session ${session} has no ask ${ask}`)
}

/** Withdraws one ask of a turn, or all of them. */
export function withdrawAsks(session: Session, turn: string, only?: string): readonly Draft[] {
  return session.asks
    .filter((ask) => ask.turn === turn && ask.id === (only ?? ask.id))
    .map((ask) => settled(ask, { outcome: 'withdrawn' }))
}

/** What decides whether an attachment counts as a client to ask. */
export type Answerer = Pick<Attachment, 'role' | 'answers' | 'state' | 'answersUntil'>

/** The asks that no client is left to answer once these attachments are all there is. */
export function settleUnanswerable(
  session: Session,
  attachments: readonly Answerer[],
  moment: Moment,
): readonly Draft[] {
  return session.asks
    .filter(isUnanswerable(attachments, moment))
    .map((ask) => settled(ask, { outcome: 'nobody_to_ask' }))
}

/** Whether the ask is not to wait, and no client to ask counts at that time. */
function isUnanswerable(
  attachments: readonly Answerer[],
  { at, hasFollower }: Pick<Moment, 'at' | 'hasFollower'>,
): (ask: Pick<Ask, 'kind' | 'onNobody'>) => boolean {
  return ({ kind, onNobody }) =>
    onNobody === 'deny' && !attachments.some(counts(kind, at)) && !hasFollower(kind)
}

/**
 * Whether it counts as a client to ask at that time: a driver that answers the kind, while it is
 * connected and for a short time after a loss. A watcher never does.
 */
function counts(kind: string, at: number): (attachment: Answerer) => boolean {
  return (attachment) => answersUntil(attachment, kind) > at
}

function answersUntil({ role, answers, state, answersUntil }: Answerer, kind: string): number {
  if (role !== 'driver' || !answers.includes(kind)) return Number.NEGATIVE_INFINITY
  return state === 'live' ? Number.POSITIVE_INFINITY : (answersUntil ?? Number.NEGATIVE_INFINITY)
}

/**
 * When the first open ask has no client left that counts, if none comes back; null: never. While a
 * follower of all asks counts there is no such time: the session is told when it is gone.
 */
export function unanswerableAt(
  { asks, attachments }: Session,
  hasFollower: Moment['hasFollower'],
): number | null {
  let first = Number.POSITIVE_INFINITY
  for (const { kind, onNobody } of asks) {
    if (onNobody !== 'deny' || hasFollower(kind)) continue
    const times = attachments.map((attachment) => answersUntil(attachment, kind))
    first = Math.min(first, Math.max(...times, Number.NEGATIVE_INFINITY))
  }
  return first === Number.POSITIVE_INFINITY ? null : first
}

function settled({ id, turn }: { id: string; turn: string }, outcome: AskOutcome): Draft {
  return { type: 'ask.settled', ask: id, turn, ...outcome }
}

export function outcomeOf(event: AskEvent & { type: 'ask.settled' }): AskOutcome {
  if (event.outcome !== 'answered') return { outcome: event.outcome }
  const { answer, by, attachment } = event
  return { outcome: 'answered', answer, by, ...(attachment === undefined ? {} : { attachment }) }
}

export function foldAsk(session: Folding, event: AskEvent): void {
  if (event.type === 'ask.settled') {
    session.asks = session.asks.filter((ask) => ask.id !== event.ask)
    return
  }
  session.asks = [...session.asks, openedAsk(event)]
}

export function openedAsk(event: AskEvent & { type: 'ask.opened' }): Ask {
  const { ask: id, turn, kind, question, options, deadline, onNobody } = event
  const { data, detail, accepts } = event
  return {
    ...{ id, turn, kind, question, options, deadline, onNobody },
    ...(data === undefined ? {} : { data }),
    ...(detail === undefined ? {} : { detail }),
    ...(accepts === undefined ? {} : { accepts }),
  }
}
