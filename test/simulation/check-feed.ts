/**
 * I4 and I9 as followers saw them: every event once, in order, and of the output a beginning
 * without holes.
 */
import { isTold } from '../../src/core/feed-item.ts'
import type { Violation } from './checker.ts'
import { grouped, type Facts, type Log } from './facts.ts'
import type { Happening, Place, Recorded } from './history.ts'

type Item = Pick<Recorded<Happening & { type: 'follow.item' }>, 'seq' | 'delta' | 'what' | 'turn'>

export function* checkFollowers(facts: Facts): Generator<Violation> {
  const items = grouped(facts.history.of('follow.item'), ({ follower }) => follower)
  const over = new Set(
    facts.history
      .of('follow.ended')
      .flatMap(({ follower, how }) => (how === 'over' ? follower : [])),
  )
  for (const { follower, session, from } of facts.history.of('follow.begun')) {
    const log = facts.logs.get(session)
    if (log === undefined) continue
    const seen = items.get(follower) ?? []
    const who = `follower ${follower} of ${session}`
    yield* checkEvents(who, log, from, seen)
    yield* checkDeltas(who, facts, log, seen)
    const lastSeq = seen.at(-1)?.seq ?? from.seq
    if (over.has(follower) && lastSeq !== log.events.length) {
      yield {
        invariant: 'I4',
        message: `${who} was told the end at ${lastSeq} of ${log.events.length}`,
      }
    }
    if (over.has(follower) && log.last?.closed === null) {
      yield { invariant: 'I4', message: `${who} was told the end, but the session is open` }
    }
  }
}

function* checkEvents(
  who: string,
  log: Log,
  from: Place,
  seen: readonly Item[],
): Generator<Violation> {
  let seq = from.seq
  for (const item of seen.filter(({ delta }) => delta === 0)) {
    const next = log.events.find(({ seq: later, type }) => later > seq && isTold(type, true))
    if (item.seq !== next?.seq) {
      yield { invariant: 'I4', message: `${who} saw ${item.seq} after ${seq}` }
    }
    if (log.events[item.seq - 1]?.type !== item.what) {
      yield { invariant: 'I4', message: `${who} saw ${item.what} at ${item.seq}: not in the log` }
    }
    seq = item.seq
  }
}

/** Deltas are of the turn that runs, never repeated, and since the last message without a hole. */
export function* checkDeltas(
  who: string,
  facts: Facts,
  { id, states }: Log,
  seen: readonly Item[],
): Generator<Violation> {
  /** What the next delta has to be, or null if the follower began in the middle. */
  let next: number | null = null
  let last = 0
  let turn = ''
  for (const item of seen) {
    if (item.what === 'turn.started') {
      turn = item.turn ?? ''
      next = 1
      last = 0
    } else if (item.what === 'message.added') {
      const messages = boundary(facts, id, item, seen)
      next = messages
    }
    if (item.delta === 0) continue
    const what = `${who} saw delta ${item.delta} of ${item.turn} at ${item.seq}`
    const state = states[item.seq - 1]
    if (state?.running?.id !== item.turn) {
      yield { invariant: 'I3', message: `${what}, which does not run` }
    }
    if (item.turn === turn && item.delta <= last) {
      yield { invariant: 'I4', message: `${what} after ${last}` }
    }
    if (next !== null && item.turn === turn && item.delta !== next) {
      yield { invariant: 'I4', message: `${what}, not ${next}` }
    }
    turn = item.turn ?? ''
    last = item.delta
    next = item.delta + 1
  }
}

/** The first delta after a message that was recorded in the middle of a turn, if that is known. */
function boundary(
  { runs, logs }: Facts,
  session: string,
  { turn, seq }: Item,
  _seen: readonly Item[],
): number | null {
  const run = runs.find(({ begun }) => begun.session === session && begun.turn === turn)
  const events = logs.get(session)?.events ?? []
  const before = events.filter(
    (event) => event.type === 'message.added' && event.turn === turn && event.seq < seq,
  ).length
  const deltas = run?.boundaries[before]
  return deltas === undefined ? null : deltas + 1
}
