/**
 * I4 and I7 as pages and sockets saw them: the session's own events, every one once and in order,
 * over any number of connections; of the output a beginning without holes.
 */
import { isPresence, isTold } from '../../../src/core/feed-item.ts'
import { checkDeltas } from '../check-feed.ts'
import type { Violation } from '../checker.ts'
import type { Log } from '../facts.ts'
import type { Place } from '../history.ts'
import { sessionOf } from './check-places.ts'
import type { LinkFacts, PageFacts, WireFacts } from './facts.ts'

type Item = {
  readonly seq: number
  readonly delta: number
  readonly what: string
  readonly turn: string | null
  readonly json: string
}

export function* checkStreams(facts: WireFacts): Generator<Violation> {
  for (const link of facts.links) yield* checkLink(facts, link)
  const pages = new Map(facts.pages.map((page) => [page.begun.page, page]))
  for (const page of facts.pages) {
    const session = sessionOf(page)
    const log = facts.logs.get(session ?? '')
    const { begun, told } = page
    if (log === undefined) continue
    const who = `${begun.page} of ${session}`
    yield* checkEvents(who, log, { from: begun.from, presence: begun.presence }, told)
    yield* checkDeltas(who, facts, log, told)
    yield* checkGoesOn(who, page, pages.get(begun.continues ?? ''))
  }
}

/** After a reload it goes on where the page before it was. */
function* checkGoesOn(
  who: string,
  { begun: { from } }: PageFacts,
  before: PageFacts | undefined,
): Generator<Violation> {
  if (before === undefined) return
  const { seq, delta } = before.told.reduce(placeAfter, before.begun.from)
  if (seq === from.seq && delta === from.delta) return
  const places = `${from.seq}/${from.delta}, not ${seq}/${delta}`
  yield { invariant: 'I4', message: `${who} goes on at ${places}` }
}

function placeAfter({ delta }: Place, item: Item): Place {
  if (item.delta > 0) return { seq: item.seq, delta: item.delta }
  return { seq: item.seq, delta: item.what === 'turn.started' ? 0 : delta }
}

/** What the server sent into one socket, from the place that its welcome names. */
function* checkLink(facts: WireFacts, { link, said, welcome }: LinkFacts): Generator<Violation> {
  const who = `link ${link}`
  const log = facts.logs.get(welcome?.frame.session.id ?? '')
  const items: Item[] = []
  let seq = welcome?.frame.after.seq ?? 0
  let last = welcome?.frame.after.delta ?? 0
  for (const { stamp, frame } of said) {
    if (!('seq' in frame) && frame.type !== 'delta') continue
    if (welcome === null || stamp < welcome.stamp) {
      yield { invariant: 'I7', message: `${who} was sent events before its welcome` }
    }
    if ('seq' in frame) {
      seq = frame.seq
      if (frame.type === 'turn.started') last = 0
      const turn = 'turn' in frame ? frame.turn : null
      items.push({ seq, delta: 0, what: frame.type, turn, json: JSON.stringify(frame) })
    } else {
      const { n, turn, text } = frame
      if (n <= last) yield { invariant: 'I4', message: `${who} was sent delta ${n} after ${last}` }
      last = n
      items.push({ seq, delta: n, what: 'delta', turn, json: text })
    }
  }
  if (log === undefined || welcome === null) return
  const { after } = welcome.frame
  const presence = items.some(({ what }) => isPresence(what))
  yield* checkEvents(who, log, { from: after, presence }, items)
  yield* checkDeltas(who, facts, log, items)
}

function* checkEvents(
  who: string,
  log: Log,
  { from, presence }: { readonly from: Place; readonly presence: boolean },
  items: readonly Item[],
): Generator<Violation> {
  let { seq } = from
  for (const item of items.filter(({ delta }) => delta === 0)) {
    const event = log.events[item.seq - 1]
    const next = log.events.find(({ seq: later, type }) => later > seq && isTold(type, presence))
    if (item.seq !== next?.seq) {
      const message = `${who} saw ${item.seq} after ${seq}, not ${next?.seq}`
      yield { invariant: 'I4', message }
    }
    if (JSON.stringify(event) !== item.json) {
      yield { invariant: 'I7', message: `${who} saw ${item.json}: not in its log` }
    }
    seq = item.seq
  }
}
