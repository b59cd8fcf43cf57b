/** I8, I9 and I10: asks, attachments and the end of a session, as those outside saw them. */
import type { Violation } from './checker.ts'
import { grouped, lives, wanted, type Facts, type Log } from './facts.ts'

/** I8: what a runner asked came back to it, once, and as the log has it. */
export function* checkAsks(facts: Facts): Generator<Violation> {
  const { history, logs } = facts
  const ended = grouped(history.of('ask.ended'), ({ ask }) => ask)
  const dead = new Map(history.of('node.crashed').map(({ node, stamp }) => [node, stamp]))
  for (const { ask, node, session, stamp } of history.of('ask.begun')) {
    const outcomes = ended.get(ask) ?? []
    if (outcomes.length > 1) yield { invariant: 'I8', message: `${ask} came back twice` }
    const [first] = outcomes
    if (first === undefined) {
      if (!dead.has(node))
        yield { invariant: 'I8', message: `${ask} in ${session} never came back` }
      continue
    }
    const events = logs.get(session)?.events ?? []
    const opened = events.find((event) => event.type === 'ask.opened' && event.question === ask)
    const settled = events.find(
      (event) =>
        event.type === 'ask.settled' && opened?.type === 'ask.opened' && event.ask === opened.ask,
    )
    if (settled?.type !== 'ask.settled') {
      if (first.outcome !== 'refused' && first.outcome !== 'withdrawn') {
        yield { invariant: 'I8', message: `${ask} came back ${first.outcome}, the log has nothing` }
      }
      continue
    }
    const truth =
      settled.outcome === 'answered'
        ? `answered ${JSON.stringify(settled.answer)}`
        : settled.outcome
    const actedAt = answeredAt(facts, session, settled.seq, node)
    if (actedAt !== null && first.at > actedAt) {
      yield { invariant: 'I8', message: `${ask} came back later than ${node} knew the answer` }
    }
    // A node that lost the session tells its runner that the question is withdrawn.
    const lost = isLost(facts, node, session, stamp)
    const excused = lost && (first.outcome === 'withdrawn' || first.outcome === 'refused')
    if (truth !== first.outcome && !excused) {
      yield { invariant: 'I8', message: `${ask} came back ${first.outcome}, the log says ${truth}` }
    }
  }
  yield* checkAnswers(facts)
}

/** When this node knew that its append with this event was durable, or null if it never did. */
function answeredAt({ history }: Facts, session: string, seq: number, node: string): number | null {
  const append = history
    .of('store.appended')
    .find(({ session: id, after, count }) => id === session && after < seq && seq <= after + count)
  if (append === undefined || append.node !== node) return null
  const reply = history.of('store.replied').find(({ call }) => call === append.call)
  return reply === undefined || reply.failed ? null : reply.at
}

/** Somebody claimed the session later, or the node was stopped. */
function isLost({ history }: Facts, node: string, session: string, after: number): boolean {
  return history.happenings.some(
    (happening) =>
      happening.stamp > after &&
      ((happening.type === 'store.claimed' && happening.session === session) ||
        (happening.type === 'node.stopping' && happening.node === node)),
  )
}

/** Of all answers to an ask at most one was accepted, and that one is in the log. */
function* checkAnswers(facts: Facts): Generator<Violation> {
  const accepted = new Set<string>()
  for (const { operation, outcome } of wanted(facts, 'answer')) {
    if (outcome?.ok !== true) continue
    const { ask, answer, session } = operation
    if (accepted.has(ask)) yield { invariant: 'I8', message: `${ask} was answered twice` }
    accepted.add(ask)
    const isThere = facts.logs
      .get(session)
      ?.events.some(
        (event) => event.type === 'ask.settled' && 'answer' in event && event.answer === answer,
      )
    if (isThere !== true) {
      yield { invariant: 'I4', message: `answer ${answer} was accepted, but is not in the log` }
    }
  }
}

/** I4: what was acknowledged is in the log. I6: no two attachments share an id. */
export function* checkAttachments(facts: Facts): Generator<Violation> {
  const ids = new Set<string>()
  const expected = { attach: 'opened', resume: 'resumed', leave: 'ended' } as const
  for (const { operation, outcome } of wanted(facts, 'attach', 'resume', 'leave')) {
    if (outcome?.ok !== true) continue
    const { kind, session } = operation
    const { attachment = '' } = outcome
    if (kind === 'attach' && ids.has(attachment)) {
      yield { invariant: 'I6', message: `attachment ${attachment} was given out twice` }
    }
    ids.add(attachment)
    const type = `attachment.${expected[kind]}`
    const events = facts.logs.get(session)?.events ?? []
    if (
      !events.some(
        (event) => event.type === type && 'attachment' in event && event.attachment === attachment,
      )
    ) {
      yield { invariant: 'I4', message: `${kind} of ${attachment} in ${session} is not in the log` }
    }
  }
  for (const log of facts.logs.values()) yield* checkPolicy(log)
  for (const { begun, boundBackends } of bound(facts)) {
    const backend = facts.logs.get(begun.session)?.last?.backend
    for (const told of boundBackends.filter((told) => told !== backend)) {
      yield {
        invariant: 'I4',
        message: `${begun.session} was bound to ${told}, but has ${backend}`,
      }
    }
  }
}

/** I10: what a lost connection means is what the session's policy says. */
function* checkPolicy({ id, events, states }: Log): Generator<Violation> {
  for (const [index, event] of events.entries()) {
    const before = states[index - 1]
    if (before === undefined) continue
    const { reconnect, turns, exclusive, attachments } = before
    const drivers = attachments.filter(({ role, state }) => role === 'driver' && state === 'live')
    if (exclusive && drivers.length > 1) {
      yield { invariant: 'I7', message: `${id}: ${drivers.length} drivers at ${event.seq - 1}` }
    }
    const isFinal = reconnect === 'none' || (reconnect === 'early' && turns > 0)
    if (event.type === 'attachment.detached' && isFinal) {
      yield { invariant: 'I10', message: `${id}: detached at ${event.seq} under ${reconnect}` }
    }
    if (event.type !== 'session.closed' || event.reason !== 'last_holder_left') continue
    if (reconnect === 'reopen') {
      yield { invariant: 'I10', message: `${id}: closed with its last holder under ${reconnect}` }
    }
  }
}

function bound({ runs, history }: Facts) {
  const backends = history.of('run.bound')
  return runs.map(({ begun }) => ({
    begun,
    boundBackends: backends.filter(({ run }) => run === begun.run).map(({ backend }) => backend),
  }))
}

/** I9: after a close was acknowledged nothing is accepted, and closing is never refused. */
export function* checkClosing(facts: Facts): Generator<Violation> {
  const known = lives(facts.history)
  const closedAt = new Map<string, number>()
  for (const { operation, outcome, ended, op } of wanted(facts, 'close')) {
    const { session } = operation
    if (outcome?.ok === false && outcome.code === 'session_closed') {
      yield { invariant: 'I9', message: `close ${op} of ${session} was refused: it is closed` }
    }
    if (outcome?.ok !== true || ended === null) continue
    if ((known.get(session)?.closedAt ?? Infinity) > ended.stamp) {
      yield { invariant: 'I4', message: `${session} was told to be closed, but is open` }
    }
    closedAt.set(session, Math.min(closedAt.get(session) ?? Infinity, ended.stamp))
  }
  for (const { operation, outcome, begun, op } of facts.operations) {
    if (outcome?.ok !== true || !('session' in operation) || operation.session === null) continue
    if ((closedAt.get(operation.session) ?? Infinity) > begun.stamp) continue
    if (['turn', 'submit'].includes(operation.kind) && isKnown(facts, operation)) continue
    if (!['turn', 'submit', 'attach', 'resume', 'lose', 'leave', 'answer'].includes(operation.kind))
      continue
    const message = `${operation.kind} ${op} in ${operation.session} came after its end`
    yield { invariant: 'I9', message }
  }
}

/** A turn that the session had before. */
function isKnown({ logs }: Facts, operation: { nonce?: string; session?: string | null }): boolean {
  const events = logs.get(operation.session ?? '')?.events ?? []
  return events.some(
    (event) => 'input' in event && JSON.stringify(event.input).includes(operation.nonce ?? ''),
  )
}
