/** I2, I3, I4, I5 and I9 as the logs and the store's books show them. */
import { isDeepStrictEqual } from 'node:util'
import { checkLog } from '../../src/core/log-check.ts'
import type { Violation } from './checker.ts'
import type { Facts, Log } from './facts.ts'

/** I5: no append under an old epoch, at the wrong place or after the end; epochs only grow. */
export function* checkStore({ history }: Facts): Generator<Violation> {
  for (const happening of history.happenings) {
    if (happening.type === 'store.claimed' && happening.epoch <= happening.lastEpoch) {
      const { session, node, epoch, lastEpoch } = happening
      yield {
        invariant: 'I5',
        message: `${node} got epoch ${epoch} of ${session} after ${lastEpoch}`,
      }
    }
    if (happening.type !== 'store.appended') continue
    const { session, node, epoch, after, latest } = happening
    const what = `append to ${session} by ${node} after ${after}`
    if (epoch !== latest.epoch) {
      yield {
        invariant: 'I5',
        message: `${what} under epoch ${epoch}, the latest is ${latest.epoch}`,
      }
    }
    if (after !== latest.seq) {
      yield { invariant: 'I4', message: `${what}, but the log ends at ${latest.seq}` }
    }
    if (latest.closed) yield { invariant: 'I4', message: `${what}, but the session is closed` }
  }
}

export function* checkLogs(facts: Facts): Generator<Violation> {
  for (const log of facts.logs.values()) {
    const rules = { isAtRest: true, hasOrderedTimes: true }
    for (const { invariant, message } of checkLog(log.events, rules)) {
      yield { invariant, message: `${log.id}: ${message}` }
    }
    yield* checkSnapshots(facts, log)
    yield* checkEnd(log)
  }
}

/** A snapshot is what the log folds to. */
function* checkSnapshots({ history }: Facts, { id, states }: Log): Generator<Violation> {
  for (const { seq, body } of history.logs.get(id)?.snapshots ?? []) {
    const state: unknown = JSON.parse(JSON.stringify(states[seq - 1] ?? null))
    const { session } = JSON.parse(body) as { session: unknown }
    if (!isDeepStrictEqual(session, state)) {
      yield { invariant: 'I4', message: `${id}: the snapshot at ${seq} is not what the log says` }
    }
  }
}

/** I9: nothing is pending in a closed session. */
function* checkEnd({ id, last }: Log): Generator<Violation> {
  if (last === null || last.closed === null) return
  const { running, queued, asks, attachments } = last
  const left = queued.length + asks.length + attachments.length + (running === null ? 0 : 1)
  if (left > 0) yield { invariant: 'I9', message: `${id} is closed with ${left} things pending` }
}
