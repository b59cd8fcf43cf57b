/** I9: what is over is over: nothing is said or heard any more, and nothing is left. */
import type { Violation } from '../checker.ts'
import { lives } from '../facts.ts'
import type { History } from '../history.ts'
import { BEGINNING_MS } from '../process.ts'
import { sessionOf } from './check-places.ts'
import type { PageFacts, WireFacts } from './facts.ts'

export function* checkEnds(facts: WireFacts): Generator<Violation> {
  const { history, pages } = facts
  for (const { link, text } of history.of('wire.late')) {
    yield { invariant: 'I9', message: `link ${link} was sent ${text} after its end` }
  }
  for (const page of pages) {
    yield* checkSilence(facts, page)
    yield* checkReason(facts, page)
  }
  for (const { page, timers, sockets, wishes } of history.of('page.over')) {
    if (timers + sockets + wishes === 0) continue
    const left = `${timers} timers, ${sockets} sockets and ${wishes} wishes`
    yield { invariant: 'I9', message: `${page} is over and still has ${left}` }
  }
  for (const { node, timers, connections, presences, watchers } of history.of('server.quiet')) {
    // The lease (twice), the sweep and the look for silence go on.
    if (timers <= 4 && connections + presences + watchers === 0) continue
    const left = `${timers} timers, ${connections} connections and ${presences} presences`
    const more = `${left}, ${watchers} watchers`
    yield { invariant: 'I9', message: `everybody is gone and ${node} has ${more}` }
  }
  yield* checkGoodbyes(facts)
  yield* checkWishes(facts)
  yield* checkWelcomes(facts)
}

/** Whoever has left, or whose session has ended, hears nothing. */
function* checkSilence({ history }: WireFacts, page: PageFacts): Generator<Violation> {
  const { page: name } = page.begun
  let isOver = false
  for (const happening of history.happenings) {
    if (!('page' in happening) || happening.page !== name) continue
    const { type, stamp } = happening
    if (type === 'page.told' || type === 'page.ask' || type === 'page.asks') {
      if (isOver || stamp > page.leftAt) {
        yield { invariant: 'I9', message: `${name} is over and hears ${type} at ${stamp}` }
      }
    }
    if (type === 'page.state') isOver = happening.state === 'ended'
    if (type === 'page.state' && stamp > page.leftAt) {
      yield { invariant: 'I9', message: `${name} has left and hears ${happening.state}` }
    }
  }
}

/** A page that says that its session is closed is right. */
function* checkReason({ logs }: WireFacts, page: PageFacts): Generator<Violation> {
  const log = logs.get(sessionOf(page) ?? '')
  for (const { code } of page.states) {
    if (code !== 'session_closed' || log === undefined || log.last?.closed !== null) continue
    yield { invariant: 'I9', message: `${page.begun.page} says that ${log.id} is closed` }
  }
}

/** A client that says goodbye leaves at once, even before the welcome: its place is not kept. */
function* checkGoodbyes({ logs, links, history }: WireFacts): Generator<Violation> {
  const welcomed = new Set(links.map(({ welcome }) => welcome?.frame.attachment))
  for (const { id, events, last } of logs.values()) {
    for (const event of events) {
      if (event.type !== 'attachment.detached' || welcomed.has(event.attachment)) continue
      const opened = events.find(
        (other) => other.type === 'attachment.opened' && other.attachment === event.attachment,
      )
      // All who can have been let in there: by its key, or, with a copied token, by its id.
      const claimants = links.filter(
        ({ hello, welcome }) =>
          hello !== null &&
          welcome === null &&
          (hello.frame['session'] === id || hello.frame['key'] === last?.key) &&
          BEGINNING_MS + hello.at <= (opened?.at ?? 0),
      )
      const isGone = claimants.every(({ heard }) => heard.some(({ frame }) => frame.type === 'bye'))
      if (claimants.length === 0 || !isGone) continue
      // A goodbye that was not recorded is lost with the hold: the next one keeps the place. So does
      // a node that records the loss of all connections when it stops.
      const [lost, made] = [event, opened].map((one) => appendOf(history, id, one?.seq ?? 0))
      if (lost?.epoch !== made?.epoch || isStopping(history, lost)) continue
      yield {
        invariant: 'I9',
        message: `${id}: the place of ${event.attachment}, who left, is kept`,
      }
    }
  }
}

type RecordedAppend = ReturnType<typeof appendOf>

/** The append that recorded an event. */
function appendOf(history: History, id: string, seq: number) {
  return history
    .of('store.appended')
    .find(({ session, after, count }) => session === id && after < seq && seq <= after + count)
}

/** Whether the node that appended was about to stop. */
function isStopping(history: History, append: RecordedAppend): boolean {
  return history
    .of('node.stopping')
    .some(({ node, stamp }) => append?.node === node && stamp < append.stamp)
}

/** Whatever was pending has settled, unless its page is no more. */
function* checkWishes({ wishes, pages }: WireFacts): Generator<Violation> {
  const died = new Set(
    pages.flatMap(({ begun, diedAt }) => (diedAt < Infinity ? [begun.page] : [])),
  )
  for (const { begun, ended } of wishes) {
    if (ended !== null || died.has(begun.page)) continue
    yield { invariant: 'I9', message: `${begun.kind} ${begun.wish} of ${begun.page} never settles` }
  }
}

/** Nobody is let into a session that its server knows to be closed. */
function* checkWelcomes({ links, history }: WireFacts): Generator<Violation> {
  const known = lives(history)
  for (const { link, welcome } of links) {
    const life = known.get(welcome?.frame.session.id ?? '')
    if (welcome === null || life === undefined || welcome.stamp < life.knownAt) continue
    yield { invariant: 'I9', message: `link ${link} was let into ${life.session}, which is closed` }
  }
}
