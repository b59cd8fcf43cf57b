/** Asks: questions from a session to its clients. Every one gets exactly one outcome (I8). */
import type { AskCommand, Moment } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { AskEvent, Draft } from './events.ts'
import { newGrants } from './grants.ts'
import { STATE_LIMITS } from './limits.ts'
import { meaningOf, optionFor } from './rules.ts'
import type {
  AnsweredBy,
  Approval,
  Ask,
  AskOutcome,
  Attachment,
  Folding,
  Grant,
  Principal,
  Ruling,
  Session,
} from './state.ts'

export function decideAsk(session: Session, command: AskCommand, moment: Moment): readonly Draft[] {
  switch (command.type) {
    case 'ask':
      return openAsk(session, command, moment)
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

function openAsk(
  session: Session,
  { ask, ruling = null }: AskCommand & { type: 'ask' },
  moment: Moment,
): readonly Draft[] {
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
  const ruled = ruling === null ? null : ruledOutcome(ask, ruling)
  if (ruled !== null) return [opened, settled({ id, turn: ask.turn }, ruled)]
  const isDenied = isUnanswerable(session.attachments, moment)(ask)
  return isDenied
    ? [opened, settled({ id, turn: ask.turn }, { outcome: 'nobody_to_ask' })]
    : [opened]
}

/** The answer of a rule; null: the ask has no option to allow it, so that people are asked. */
function ruledOutcome(
  { options, accepts = [] }: Omit<Ask, 'id'>,
  { decision, message, ...by }: Ruling,
): AskOutcome | null {
  const option = optionFor(options, decision)
  if (option === null) {
    if (decision === 'allow') return null
    return { outcome: 'withdrawn', ...('rule' in by ? by : {}) }
  }
  const isTold = message !== null && accepts.includes('message')
  return { outcome: 'answered', answer: isTold ? { option, message } : option, by: null, ...by }
}

function answerAsk(
  session: Session,
  { ask: id, answer, by, attachment, mayEdit = false, standing }: AskCommand & { type: 'answer' },
): readonly Draft[] {
  const ask = session.asks.find((open) => open.id === id)
  if (ask === undefined) throw settledOrUnknown(session, id)
  assertTaken(session, ask, { attachment, standing })
  checkAnswer(ask, answer)
  if (ask.options !== null && chosen(answer).input !== undefined && !mayEdit) {
    throw new HoldfastError('forbidden', 'to answer with edited arguments needs the scope edit')
  }
  if (isOneOfSeveral(ask, { answer, by })) {
    return [{ type: 'ask.approved', ask: id, turn: ask.turn, answer, by }]
  }
  const via = attachment === null ? {} : { attachment }
  const grants = newGrants(session, chosenGrants(ask, answer))
  return [
    settled(ask, { outcome: 'answered', answer, by, ...via }),
    ...(grants.length === 0 ? [] : [{ type: 'session.granted', ask: id, grants, by } as const]),
  ]
}

/** Throws unless a rule lets the one who answers do so. */
function assertTaken(
  { attachments }: Session,
  { answeredBy = 'any', rule = '' }: Ask,
  { attachment, standing }: Pick<AskCommand & { type: 'answer' }, 'attachment' | 'standing'>,
): void {
  const isTaken: Readonly<Record<AnsweredBy, () => boolean>> = {
    driver: () => attachments.some(({ id, role }) => id === attachment && role === 'driver'),
    owner: () => standing?.isOwner === true,
    group: () => standing?.isMember === true,
    any: () => true,
  }
  if (isTaken[answeredBy]()) return
  const message = `the rule "${rule}" of the operator wants an answer of: ${answeredBy}`
  throw new HoldfastError('forbidden', message)
}

/**
 * Whether this allows it, and more people have to. Each counts once; the bearers of links, who
 * cannot be told apart, are one. Any of them may deny it.
 */
function isOneOfSeveral({ people = 1, approvals = [], options }: Ask, given: Approval): boolean {
  if (people <= 1) return false
  const [before = given] = approvals
  const option = options?.find(({ id }) => chosen(given.answer).options.includes(id))
  if (option !== undefined && meaningOf(option) === 'deny') return false
  if (approvals.some(({ by }) => personOf(by) === personOf(given.by))) {
    throw new HoldfastError('ask_approved', 'you have allowed this, and another person has to')
  }
  if (JSON.stringify(before.answer) !== JSON.stringify(given.answer)) {
    const message = 'all who allow this have to give the same answer as the first of them'
    throw new HoldfastError('invalid_answer', message)
  }
  return approvals.length + 1 < people
}

function personOf({ kind, issuer, id }: Principal): string {
  return kind === 'link' ? kind : JSON.stringify([issuer, id])
}

/** What the chosen options grant for the session. */
function chosenGrants({ options }: Ask, answer: unknown): readonly Grant[] {
  if (options === null) return []
  const { options: ids } = chosen(answer)
  return options.filter(({ id }) => ids.includes(id)).flatMap(({ grants = [] }) => grants)
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

/** The fields of these names that are there. */
function given<Name extends string>(
  from: { readonly [Field in Name]?: string },
  names: readonly Name[],
): { readonly [Field in Name]?: string } {
  const fields = names.filter((name) => from[name] !== undefined).map((name) => [name, from[name]])
  return Object.fromEntries(fields) as { [Field in Name]?: string }
}

export function outcomeOf(event: AskEvent & { type: 'ask.settled' }): AskOutcome {
  if (event.outcome !== 'answered') {
    const { outcome } = event
    return outcome === 'withdrawn' ? { outcome, ...given(event, ['rule']) } : { outcome }
  }
  const { outcome, answer, by } = event
  return { outcome, answer, by, ...given(event, ['attachment', 'rule', 'grant']) }
}

export function foldAsk(session: Folding, event: AskEvent): void {
  if (event.type === 'ask.settled') {
    session.asks = session.asks.filter((ask) => ask.id !== event.ask)
    return
  }
  if (event.type === 'ask.approved') {
    const { ask: id, by, answer } = event
    session.asks = session.asks.map((ask) =>
      ask.id === id ? { ...ask, approvals: [...(ask.approvals ?? []), { by, answer }] } : ask,
    )
    return
  }
  session.asks = [...session.asks, openedAsk(event)]
}

export function openedAsk(event: AskEvent & { type: 'ask.opened' }): Ask {
  const { ask: id, turn, kind, question, options, deadline, onNobody } = event
  const { data, detail, accepts, rule, answeredBy, people } = event
  return {
    ...{ id, turn, kind, question, options, deadline, onNobody },
    ...(data === undefined ? {} : { data }),
    ...(detail === undefined ? {} : { detail }),
    ...(accepts === undefined ? {} : { accepts }),
    ...(rule === undefined ? {} : { rule }),
    ...(answeredBy === undefined ? {} : { answeredBy }),
    ...(people === undefined ? {} : { people }),
  }
}
