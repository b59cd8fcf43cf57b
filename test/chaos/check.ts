/**
 * The checker: reads what callers and clients were told, what the logs say and what the nodes did,
 * and names every contradiction. Pure, so that it can be shown a violation.
 */
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import type { Answer, Seen } from './clients.ts'
import type { Look, Sent } from './load.ts'
import { ofKind, type Testimony } from './witness.ts'

export type LogEvent = LoggedEvent & {
  readonly outcome?: string
  readonly answer?: unknown
}

export type History = {
  readonly sent: readonly Sent[]
  readonly looks: readonly Look[]
  readonly answers: readonly Answer[]
  readonly clients: readonly Seen[]
  /** The ids of all sessions by their key. */
  readonly sessions: ReadonlyMap<string, readonly string[]>
  /** When nothing runs or waits any more. */
  readonly logs: ReadonlyMap<string, readonly LogEvent[]>
  /** How far every client of a session should have come. */
  readonly ends: ReadonlyMap<string, number>
  readonly testimony: readonly Testimony[]
  /** How often a run may tick after the next has begun: one that was frozen has to learn of it. */
  readonly lateTicksMax: number
}

export function check(history: History): readonly string[] {
  return [
    ...checkIds(history),
    ...checkLogs(history),
    ...checkAnswers(history),
    ...checkLooks(history),
    ...checkAsks(history),
    ...checkClients(history),
    ...checkRuns(history),
    ...checkEpochs(history),
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

/** I2, I3, I4, I8, I11, as far as one log can break them. */
function checkLogs({ logs }: History): readonly string[] {
  return [...logs].flatMap(([session, log]) =>
    brokenInLog(log, true).map((problem) => `log of ${session}: ${problem}`),
  )
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

/** I5: nobody is shown a session as it was before something that had been acknowledged. */
function checkLooks({ looks }: History): readonly string[] {
  return looks
    .filter(({ known, seq }) => seq < known)
    .map(({ session, known, seq }) => `${session} was shown at ${seq} when it was past ${known}`)
}

/** I8: who was told that its answer counts is right, and so is what the agent was told. */
function checkAsks({ answers, logs, testimony }: History): readonly string[] {
  const settled = new Map<string, LogEvent>()
  for (const [session, log] of logs) {
    for (const event of log.filter(({ type }) => type === 'ask.settled')) {
      settled.set(`${session}/${event.ask}`, event)
      settled.set(`${session}/${event.turn}`, event)
    }
  }
  const given = answers.flatMap(({ session, ask, answer, isTaken }) => {
    const inLog = settled.get(`${session}/${ask}`)
    if (isTaken !== true || inLog?.answer === answer) return []
    return [`${answer} was taken for ${session}/${ask}, which is ${sayOutcome(inLog)}`]
  })
  const told = ofKind(testimony, 'told').flatMap(({ session, turn, outcome }) => {
    const inLog = settled.get(`${session}/${turn}`)
    // A run whose session was lost hears that its question is withdrawn, whatever became of it.
    if (outcome.outcome === 'withdrawn' || sayOutcome(inLog) === sayOutcome(outcome)) return []
    return [`${session}/${turn} heard ${sayOutcome(outcome)}, the log has ${sayOutcome(inLog)}`]
  })
  return [...given, ...told]
}

function sayOutcome(event: { outcome?: string; answer?: unknown } | undefined): string {
  const { outcome = 'unknown', answer } = event ?? {}
  return answer === undefined ? outcome : `${outcome} ${JSON.stringify(answer)}`
}

/** I4 as a client sees it: every event of the log, once, in order, and none that is not there. */
function checkClients({ clients, logs, ends }: History): readonly string[] {
  return clients.flatMap(({ client, session, events, problems }) => {
    const log = logs.get(session)
    if (log === undefined) return [`${client} never got to its session`, ...problems]
    const wrong = events.findIndex(
      ({ seq, type }, index) => seq !== index + 1 || log[index]?.type !== type,
    )
    const told = events[wrong]
    const disorder =
      told === undefined
        ? []
        : [`${client} was told ${told.seq} ${told.type} where ${wrong + 1} was due`]
    const end = ends.get(session) ?? 0
    const behind = events.length < end ? [`${client} came to ${events.length} of ${end}`] : []
    return [...problems.map((problem) => `${client} ${problem}`), ...disorder, ...behind]
  })
}

/** I2 as the agents saw it: an old run does not go on once the next has begun. */
function checkRuns({ testimony, lateTicksMax }: History): readonly string[] {
  const current = new Map<string, string>()
  const over = new Set<string>()
  const late = new Map<string, number>()
  for (const { session, run } of ofKind(testimony, 'tick')) {
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
    .filter(([, count]) => count > lateTicksMax)
    .map(([name, count]) => `run ${name} went on for ${count} ticks after the next had begun`)
}

/** I5: once a session is claimed, nothing is written to it under an older epoch. */
function checkEpochs({ testimony }: History): readonly string[] {
  const claims = ofKind(testimony, 'claim')
  return ofKind(testimony, 'append').flatMap(({ session, epoch, after }) => {
    const newer = claims.find(
      (claim) => claim.session === session && claim.epoch > epoch && claim.seq <= after,
    )
    if (newer === undefined) return []
    return [`stale append to ${session} after ${after}: epoch ${epoch}, claimed by ${newer.epoch}`]
  })
}
