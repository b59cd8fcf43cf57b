/** I8 as pages saw it: every question that waits is there, once, and its answer counts once. */
import type { Violation } from '../checker.ts'
import type { Log } from '../facts.ts'
import { sessionOf } from './check-places.ts'
import type { PageFacts, WireFacts, WishFacts } from './facts.ts'

export function* checkAsksOfPages(facts: WireFacts): Generator<Violation> {
  for (const page of facts.pages) {
    const log = facts.logs.get(sessionOf(page) ?? '')
    if (log === undefined) continue
    yield* checkOpen(facts, log, page)
    yield* checkTold(facts, log, page)
  }
  for (const wish of facts.wishes) if (wish.begun.kind === 'answer') yield* checkAnswer(facts, wish)
}

/** The asks that wait are those of the log, at the place that the page has come to. */
function* checkOpen({ history }: WireFacts, log: Log, page: PageFacts): Generator<Violation> {
  const { page: name, kinds } = page.begun
  let welcomed = 0
  for (const happening of history.happenings) {
    if (!('page' in happening) || happening.page !== name) continue
    const isLive = happening.type === 'page.state' && happening.state === 'live'
    if (isLive) welcomed = happening.seq
    if (!isLive && happening.type !== 'page.asks') continue
    const { asks, seq, at, stamp } = happening
    const isEnd = page.states.some((state) => state.code !== null && state.at === at)
    if (asks.length === 0 && isEnd) continue
    const open = log.states[Math.max(seq, welcomed) - 1]?.asks ?? []
    const expected = open.filter(({ kind }) => kinds.includes(kind)).map(({ id }) => id)
    if (asks.join() === expected.join()) continue
    const both = `[${asks.join()}], the log has [${expected.join()}]`
    yield { invariant: 'I8', message: `${name} of ${log.id} has the asks ${both} at ${stamp}` }
  }
}

/** Each was told once, as soon as the page knew of it. */
function* checkTold({ history }: WireFacts, { id }: Log, page: PageFacts): Generator<Violation> {
  const { page: name, kinds } = page.begun
  const told = history.of('page.ask').filter((happening) => happening.page === name)
  for (const [index, { ask, stamp }] of told.entries()) {
    const before = told.slice(0, index).findLast((other) => other.ask === ask)
    // Whoever takes a session over after its end begins anew.
    const isAnew = page.states.some(
      (state) =>
        state.state === 'ended' && state.stamp < stamp && state.stamp > (before?.stamp ?? 0),
    )
    if (before !== undefined && !isAnew) {
      yield { invariant: 'I8', message: `${name} of ${id} was told of ${ask} twice` }
    }
  }
  const missing = (ask: string, at: number): boolean =>
    !told.some((other) => other.ask === ask && other.at <= at)
  for (const { state, asks, at } of page.states) {
    if (state !== 'live') continue
    for (const ask of asks.filter((waiting) => missing(waiting, at))) {
      yield { invariant: 'I8', message: `${name} of ${id} was not told of ${ask} at its welcome` }
    }
  }
  let welcomed = Infinity
  for (const { type, stamp, ...rest } of [...page.states, ...page.told].sort(byStamp)) {
    if (type === 'page.state' && 'state' in rest && rest.state === 'live') welcomed = rest.seq
    if (type !== 'page.told' || !('json' in rest) || rest.what !== 'ask.opened') continue
    const { ask, kind } = JSON.parse(rest.json) as { readonly ask: string; readonly kind: string }
    if (rest.seq <= welcomed || !kinds.includes(kind) || !missing(ask, rest.at)) continue
    yield { invariant: 'I8', message: `${name} of ${id} was not told of ${ask} at ${stamp}` }
  }
}

function byStamp(one: { readonly stamp: number }, other: { readonly stamp: number }): number {
  return one.stamp - other.stamp
}

/** What a person is told of an answer is what the log has. */
function* checkAnswer({ logs, pages }: WireFacts, wish: WishFacts): Generator<Violation> {
  const { begun, outcome } = wish
  const page = pages.find(({ begun: { page: name } }) => name === begun.page)
  const log = page === undefined ? undefined : logs.get(sessionOf(page) ?? '')
  const isOwn = log?.events.some(
    (event) =>
      event.type === 'ask.settled' && event.outcome === 'answered' && event.answer === begun.text,
  )
  const what = `answer ${begun.wish} (${begun.text}) of ${begun.page}`
  if (outcome?.ok === true && isOwn !== true) {
    yield { invariant: 'I8', message: `${what} was accepted, but is not in the log` }
  }
  const isLate = outcome?.ok === false && outcome.code === 'ask_settled'
  if (isLate && isOwn === true) {
    yield { invariant: 'I8', message: `${what} is in the log, but was told to be too late` }
  }
}
