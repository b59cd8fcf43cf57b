/**
 * The invariants of the design, as pure functions from what happened to what was wrong. Each
 * violation carries the number of the invariant that it breaks.
 */
import { checkAnswerers } from './check-answerers.ts'
import { checkAsks, checkAttachments, checkClosing } from './check-life.ts'
import { checkFollowers } from './check-feed.ts'
import { checkLogs, checkStore } from './check-log.ts'
import { checkRequests, checkRuns, checkSteered } from './check-turns.ts'
import { gather, lives, wanted, type Facts, type Life } from './facts.ts'
import type { History } from './history.ts'

export type Violation = { readonly invariant: string; readonly message: string }

export function check(history: History): readonly Violation[] {
  const facts = gather(history)
  return [
    ...checkStore(facts),
    ...checkLogs(facts),
    ...checkResolves(facts),
    ...checkRuns(facts),
    ...checkSteered(facts),
    ...checkRequests(facts),
    ...checkAsks(facts),
    ...checkAnswerers(facts),
    ...checkAttachments(facts),
    ...checkClosing(facts),
    ...checkFollowers(facts),
    ...checkRest(facts),
  ]
}

/** I1: everybody who asked for a key during one session's life got that session. */
function* checkResolves(facts: Facts): Generator<Violation> {
  const known = lives(facts.history)
  const forgets = facts.history.forgetsLeases
  const created = new Set<string>()
  for (const { operation, begun, ended, outcome } of wanted(facts, 'resolve')) {
    const { id, key, internal } = operation
    const who = `resolve of ${JSON.stringify({ id, key })} at ${begun.stamp}`
    if (outcome === null || ended === null) continue
    if (!outcome.ok) {
      if (id === null && (outcome.code === 'too_many' || outcome.code === 'session_closed')) {
        yield { invariant: 'I1', message: `${who} was refused: ${outcome.code}` }
      }
      continue
    }
    const session = outcome.session ?? ''
    const life = known.get(session)
    if (outcome.isNew === true) {
      if (created.has(session))
        yield { invariant: 'I1', message: `${who}: ${session} is new twice` }
      created.add(session)
    }
    if (id !== null && session !== id) yield { invariant: 'I1', message: `${who} got ${session}` }
    if (life === undefined) {
      yield { invariant: 'I1', message: `${who} got ${session}, which is not in the store` }
    } else if (life.from > ended.stamp || (life.knownAt < begun.stamp && !forgets)) {
      yield { invariant: 'I1', message: `${who} got ${session}, closed at ${life.knownAt}` }
    } else if (key !== null && life.key !== key) {
      yield { invariant: 'I1', message: `${who} got ${session}, which has the key ${life.key}` }
    } else if (internal && !life.internal) {
      yield { invariant: 'I1', message: `${who} got ${session}, which is not internal` }
    }
  }
  for (const { outcome } of wanted(facts, 'list')) {
    const listed = outcome?.ok === true ? (outcome.listed ?? []) : []
    for (const session of listed.filter((id) => known.get(id)?.internal === true)) {
      yield { invariant: 'I1', message: `internal session ${session} is listed` }
    }
  }
  yield* checkKeys([...known.values()])
}

/** A key names at most one open session at any time. */
function* checkKeys(all: readonly Life[]): Generator<Violation> {
  for (const life of all) {
    const rival = all.find(
      ({ session, key, from }) =>
        key !== null &&
        key === life.key &&
        session !== life.session &&
        from >= life.from &&
        from < life.closedAt,
    )
    if (rival !== undefined) {
      const both = `${life.session} and ${rival.session}`
      yield { invariant: 'I1', message: `${both} have the key ${life.key} at once` }
    }
  }
}

/** A healed world comes to rest, nobody waits for ever, and nothing is left in hand. */
export function* checkRest({ history }: Facts): Generator<Violation> {
  for (const { why } of history.of('world.stuck')) {
    yield { invariant: 'rest', message: `the world does not come to rest: ${why}` }
  }
  for (const { message } of history.of('unhandled')) {
    yield { invariant: 'rest', message: `unhandled rejection: ${message}` }
  }
  const known = [...lives(history).values()]
  for (const { node, timers, held, stamp } of history.of('node.quiet')) {
    const open = known.filter(({ knownAt }) => knownAt > stamp).length
    // The lease (its next beat, and its end) and the sweep go on.
    if (timers > 3 && !history.wallJumps && !history.forgetsLeases) {
      yield { invariant: 'I9', message: `${node} has ${timers} timers although nothing happens` }
    }
    if (held > open && !history.forgetsLeases) {
      yield { invariant: 'I9', message: `${node} holds ${held} sessions, ${open} are open` }
    }
  }
  for (const { node, timers, held } of history.of('node.stopped')) {
    if (timers > 0 || held > 0) {
      const left = `${timers} timers and ${held} sessions`
      yield { invariant: 'rest', message: `${node} has stopped and still has ${left}` }
    }
  }
}

/** The attachments that have not ended. */
export function openAttachments(history: History): string[] {
  const open = new Set<string>()
  for (const [session, { events }] of history.logs) {
    for (const { body } of events) {
      if (!body.includes('attachment.')) continue
      const { type, attachment } = JSON.parse(body) as { type: string; attachment: string }
      if (type === 'attachment.opened') open.add(`${session}/${attachment}`)
      if (type === 'attachment.ended') open.delete(`${session}/${attachment}`)
    }
  }
  return [...open]
}
