/** I2, I3, I4, I5 and I9 as the logs and the store's books show them. */
import { isDeepStrictEqual } from 'node:util'
import type { SessionEvent } from '../../src/core/events.ts'
import { isTerminal } from '../../src/core/turns.ts'
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
    yield* checkOrder(log)
    yield* checkTurns(log)
    yield* checkAskEvents(log)
    yield* checkSnapshots(facts, log)
    yield* checkEnd(log)
  }
}

/** I4: 1, 2, 3, …, in the order of their times, and nothing after the end. */
function* checkOrder({ id, events }: Log): Generator<Violation> {
  for (const [index, { seq, at }] of events.entries()) {
    if (at < (events[index - 1]?.at ?? at)) {
      yield { invariant: 'I4', message: `${id}: event ${seq} is older than the one before it` }
    }
    if (seq !== index + 1) {
      yield { invariant: 'I4', message: `${id}: event ${index + 1} says that it is ${seq}` }
    }
  }
  const end = events.findIndex(({ type }) => type === 'session.closed')
  if (end >= 0 && end < events.length - 1) {
    yield { invariant: 'I4', message: `${id}: ${events.length - 1 - end} events follow its end` }
  }
}

/** I2: one runs at a time. I3: the queue is first in, first out; every turn ends once. */
function* checkTurns({ id, events }: Log): Generator<Violation> {
  let running: string | null = null
  let queue: string[] = []
  const ended = new Set<string>()
  const bad = (invariant: string, { seq, type }: SessionEvent, problem: string): Violation => ({
    invariant,
    message: `${id}: ${type} at ${seq}: ${problem}`,
  })
  for (const event of events) {
    if (!('turn' in event) || event.type.startsWith('ask.')) continue
    const { turn } = event
    if (ended.has(turn)) yield bad('I3', event, `${turn} is over`)
    if (event.type === 'turn.queued') {
      queue.push(turn)
    } else if (event.type === 'turn.joined') {
      if (!queue.includes(turn)) yield bad('I3', event, `${turn} does not wait`)
    } else if (event.type === 'turn.started') {
      if (running !== null) yield bad('I2', event, `${running} runs`)
      const first = queue[0]
      if (queue.includes(turn) && first !== turn) yield bad('I3', event, `${first} waits longer`)
      running = turn
      queue = queue.filter((waiting) => waiting !== turn)
    } else if (event.type === 'message.added' || event.type === 'turn.activity') {
      if (running !== turn) yield bad('I3', event, `${turn} does not run`)
    } else if (isTerminal(event)) {
      if (running !== turn && !queue.includes(turn)) yield bad('I3', event, `${turn} is unknown`)
      ended.add(turn)
      if (running === turn) running = null
      queue = queue.filter((waiting) => waiting !== turn)
    }
  }
  for (const turn of running === null ? queue : [running, ...queue]) {
    yield { invariant: 'I3', message: `${id}: ${turn} never ends` }
  }
}

/** I8: every ask is settled exactly once, while its turn runs. */
function* checkAskEvents({ id, events, states }: Log): Generator<Violation> {
  const open = new Map<string, string>()
  for (const [index, event] of events.entries()) {
    if (event.type === 'ask.opened') {
      open.set(event.ask, event.turn)
      if (states[index]?.running?.id !== event.turn) {
        yield { invariant: 'I8', message: `${id}: ${event.ask} is of a turn that does not run` }
      }
    } else if (event.type === 'ask.settled') {
      if (!open.delete(event.ask)) {
        yield { invariant: 'I8', message: `${id}: ${event.ask} is settled, but does not wait` }
      }
    } else if ('turn' in event && isTerminal(event)) {
      for (const [ask] of [...open].filter(([, turn]) => turn === event.turn)) {
        yield { invariant: 'I8', message: `${id}: ${ask} outlives its turn ${event.turn}` }
      }
    }
  }
  for (const ask of open.keys())
    yield { invariant: 'I8', message: `${id}: ${ask} is never settled` }
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
