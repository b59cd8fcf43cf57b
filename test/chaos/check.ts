/**
 * The checker: reads what callers were told, what the logs say and what the agents did, and names
 * every contradiction. Pure, so that it can be shown a violation.
 */
import type { Sent } from './load.ts'

export type LogEvent = {
  readonly seq: number
  readonly type: string
  readonly turn?: string
  readonly input?: unknown
  readonly text?: string
}

export type History = {
  readonly sent: readonly Sent[]
  /** The ids of all sessions by their key. */
  readonly sessions: ReadonlyMap<string, readonly string[]>
  readonly logs: ReadonlyMap<string, readonly LogEvent[]>
  /** `TIME SESSION RUN`, as the agents wrote them. */
  readonly ticks: readonly string[]
}

const ENDS = /^turn\.(done|failed|cancelled|interrupted|expired)$/

/** A run that was frozen may tick once or twice before it learns that it is over. */
const LATE_TICKS_MAX = 2

export function check(history: History): readonly string[] {
  return [
    ...checkIds(history),
    ...[...history.logs].flatMap(([session, log]) => [
      ...checkSeqs(session, log),
      ...checkTurns(session, log),
    ]),
    ...checkAnswers(history),
    ...checkRuns(history),
  ]
}

/** I1: one id per key, in every answer too. */
function checkIds({ sent, sessions }: History): readonly string[] {
  const problems: string[] = []
  for (const [key, ids] of sessions) {
    if (ids.length !== 1) problems.push(`key ${key} has ${ids.length} sessions`)
    const told = sent.filter((one) => one.key === key && one.answer !== null)
    for (const { text, answer } of told) {
      if (answer!.session !== ids[0]) problems.push(`${text} ran in another session than its key's`)
    }
  }
  return problems
}

/** I4: 1, 2, 3, …, as the events themselves say. */
function checkSeqs(session: string, log: readonly LogEvent[]): readonly string[] {
  const wrong = log.findIndex(({ seq }, index) => seq !== index + 1)
  return wrong === -1
    ? []
    : [`log of ${session}: event ${wrong + 1} says that it is ${log[wrong]!.seq}`]
}

/** I2, I3: one turn at a time, each with one end, none left. */
function checkTurns(session: string, log: readonly LogEvent[]): readonly string[] {
  const problems: string[] = []
  const ended = new Set<string>()
  let running: string | null = null
  for (const { type, turn = '' } of log) {
    if (type === 'turn.started') {
      if (running !== null) problems.push(`${session}: ${turn} starts while ${running} runs`)
      running = turn
    } else if (ENDS.test(type)) {
      if (ended.has(turn)) problems.push(`${session}: ${turn} ends twice`)
      ended.add(turn)
      if (running === turn) running = null
    }
  }
  if (running !== null) problems.push(`${session}: ${running} never ends`)
  return problems
}

/** I4, I11: what was acknowledged is there, once; nothing that was asked once runs twice. */
function checkAnswers({ sent, logs }: History): readonly string[] {
  const started = new Map<string, string[]>()
  const done = new Set<string>()
  for (const [session, log] of logs) {
    for (const { type, turn, input } of log) {
      if (type === 'turn.started') {
        const text = typeof input === 'string' ? input : String((input as { text?: string }).text)
        started.set(text, [...(started.get(text) ?? []), `${session}/${turn}`])
      }
      if (type === 'turn.done') done.add(`${session}/${turn}`)
    }
  }
  return sent.flatMap(({ text, answer }) => {
    const runs = started.get(text) ?? []
    if (runs.length > 1) return [`${text} ran ${runs.length} times: ${runs.join(', ')}`]
    if (answer === null) return []
    const place = `${answer.session}/${answer.turn}`
    if (runs[0] !== place) return [`${text} was acknowledged as ${place}, but is ${runs[0]}`]
    if (answer.reply.startsWith('(')) return []
    if (answer.reply !== text) return [`${text} was answered with ${answer.reply}`]
    return done.has(place) ? [] : [`${text} was answered, but is not done in the log`]
  })
}

/** I2 as the agents saw it: an old run does not go on once the next has begun. */
function checkRuns({ ticks }: History): readonly string[] {
  const current = new Map<string, string>()
  const over = new Set<string>()
  const late = new Map<string, number>()
  for (const line of ticks) {
    const [, session = '', run = ''] = line.split(' ')
    const name = `${session} ${run}`
    if (over.has(name)) {
      late.set(name, (late.get(name) ?? 0) + 1)
      continue
    }
    const before = current.get(session)
    if (before !== undefined && before !== name) over.add(before)
    current.set(session, name)
  }
  return [...late]
    .filter(([, count]) => count > LATE_TICKS_MAX)
    .map(([name, count]) => `run ${name} went on for ${count} ticks after the next had begun`)
}
