/**
 * I6 and the drivers of I7: ids and tokens are fresh, an old token opens nothing, whoever is alive
 * keeps its place unless a person decides otherwise, and nobody is locked out.
 */
import type { SessionEvent } from '../../../src/core/events.ts'
import type { Violation } from '../checker.ts'
import type { Log } from '../facts.ts'
import type { Heard, LinkFacts, PageFacts, Said, WireFacts } from './facts.ts'

export function* checkPlaces(facts: WireFacts): Generator<Violation> {
  yield* checkFresh(facts)
  for (const log of facts.logs.values()) yield* checkRotation(facts, log)
  yield* checkThieves(facts)
  yield* checkRivals(facts)
  yield* checkDisplaced(facts)
  yield* checkInUse(facts)
  yield* checkAuthors(facts)
  for (const page of facts.pages) yield* checkLockedOut(facts, page)
}

/** No two attachments share an id, no two welcomes a token, or a place in one attachment's life. */
function* checkFresh({ logs, links }: WireFacts): Generator<Violation> {
  const known = new Set<string>()
  const isTwice = (name: string): boolean => known.size === known.add(name).size
  for (const { id, events } of logs.values()) {
    for (const event of events) {
      if (event.type === 'attachment.opened' && isTwice(event.attachment)) {
        yield { invariant: 'I6', message: `${id}: attachment ${event.attachment} is there twice` }
      }
    }
  }
  for (const { link, welcome } of links) {
    if (welcome === null) continue
    const { attachment, epoch, resume } = welcome.frame
    if (resume !== null && isTwice(resume)) {
      yield { invariant: 'I6', message: `link ${link} was given a token that was given before` }
    }
    if (isTwice(`${attachment}/${epoch}`)) {
      yield { invariant: 'I6', message: `link ${link} is ${attachment}, connection ${epoch}, too` }
    }
  }
}

/** An event once for each attachment that it is about. */
function attachmentsOf(event: SessionEvent): readonly (readonly [SessionEvent, string])[] {
  if (event.type === 'attachment.confirmed') return event.attachments.map((id) => [event, id])
  if (!('attachment' in event) || event.type === 'ask.settled') return []
  return [[event, event.attachment]]
}

/** A token is good until its replacement is confirmed by the one who got it, and no longer. */
function* checkRotation({ links }: WireFacts, { id, events }: Log): Generator<Violation> {
  const good = new Map<string, { epoch: number; tokens: readonly string[] }>()
  for (const [event, attachment] of events.flatMap(attachmentsOf)) {
    const what = `${id}: ${event.type} of ${attachment} at ${event.seq}`
    const known = good.get(attachment)
    if (event.type === 'attachment.opened') {
      good.set(attachment, { epoch: 1, tokens: event.token === undefined ? [] : [event.token] })
    } else if (event.type === 'attachment.resumed' && known !== undefined) {
      const { token = '', shown = '', epoch } = event
      if (!known.tokens.includes(shown)) {
        yield { invariant: 'I6', message: `${what} by a token that was not good` }
      }
      if (epoch !== known.epoch + 1) yield { invariant: 'I6', message: `${what}: epoch ${epoch}` }
      good.set(attachment, { epoch, tokens: [token, shown] })
    } else if (event.type === 'attachment.confirmed' && known !== undefined) {
      good.set(attachment, { ...known, tokens: known.tokens.slice(0, 1) })
      const isReady = links.some(
        ({ welcome, heard }) =>
          welcome?.frame.attachment === attachment &&
          welcome.frame.epoch === known.epoch &&
          heard.some(({ frame }) => frame.type === 'ready' && frame['epoch'] === known.epoch),
      )
      if (!isReady) yield { invariant: 'I6', message: `${what}, but its client had not said so` }
    }
  }
}

/** Whoever shows an old token is refused, and the gatekeeper hears of it. */
function* checkThieves({ links, history }: WireFacts): Generator<Violation> {
  const told = new Set(history.of('gate.failed').map(({ address }) => address))
  for (const { link, by, welcome, said } of links) {
    if (!by.startsWith('thief')) continue
    if (welcome !== null) {
      yield { invariant: 'I6', message: `link ${link}: ${by} was let in with an old token` }
    }
    const isBad = said.some(({ frame }) => frame.type === 'refuse' && frame.code === 'token_reused')
    if (isBad && !told.has(by)) {
      yield { invariant: 'I6', message: `link ${link}: nobody was told of ${by}` }
    }
  }
}

/** One attachment has one connection at a time, and an exclusive session one that drives it. */
function* checkRivals({ links }: WireFacts): Generator<Violation> {
  const welcomed = links.filter((link) => link.welcome !== null)
  for (const first of welcomed) {
    for (const second of welcomed) {
      if (first.welcome === null || second.welcome === null || first === second) continue
      const [one, other] = [first.welcome.frame, second.welcome.frame]
      if (one.session.id !== other.session.id || first.welcome.stamp > second.welcome.stamp)
        continue
      if (first.endedAt <= second.welcome.stamp) continue
      const both = `links ${first.link} and ${second.link} of ${one.session.id}`
      if (one.attachment === other.attachment) {
        yield { invariant: 'I6', message: `${both} are ${one.attachment} at once` }
      } else if (one.session.exclusive && one.role === 'driver' && other.role === 'driver') {
        yield { invariant: 'I7', message: `${both} drive it at once` }
      }
    }
  }
}

/** Whose connection works is not superseded, unless somebody asked for just that. */
function* checkDisplaced({ links }: WireFacts): Generator<Violation> {
  for (const { link, by, how, welcome, endedAt, mishapAt } of links) {
    if (!how.startsWith('4408') || welcome === null) continue
    const { id, key } = welcome.frame.session
    const rivals = links.filter(
      ({ link: other, hello }) =>
        other !== link &&
        hello !== null &&
        hello.stamp < endedAt &&
        (hello.frame['session'] === id || hello.frame['key'] === key),
    )
    const isTaken = rivals.some(({ hello }) => hello?.frame['take'] === true)
    if (!isTaken && rivals.every((rival) => rival.endedAt < endedAt)) {
      yield { invariant: 'I7', message: `link ${link} of ${by} was superseded by nobody` }
    }
    if (!isTaken && mishapAt > endedAt) {
      yield { invariant: 'I7', message: `link ${link} of ${by} was superseded, but it was alive` }
    }
  }
}

/** "In use" is said only where somebody drives it who has just shown to be alive. */
function* checkInUse({ links, logs }: WireFacts): Generator<Violation> {
  const keyOf = ({ frame }: Said<Heard>): unknown =>
    frame['key'] ?? logs.get(frame['session'] as string)?.last?.key
  for (const { link, said, hello } of links) {
    const refusal = said.find(({ frame }) => frame.type === 'refuse' && frame.code === 'in_use')
    if (refusal === undefined || hello === null) continue
    const isRecent = (stamp: number): boolean => stamp > hello.stamp && stamp < refusal.stamp
    const isDriven = links.some(({ link: number, hello: other, welcome, heard, endedAt }) => {
      if (number === link || other === null || other.frame['role'] !== 'driver') return false
      if (keyOf(other) !== keyOf(hello)) return false
      // It has been let in meanwhile, or was about to be.
      const isNew = welcome === null ? isRecent(endedAt) : isRecent(welcome.stamp)
      const isPending = other.stamp < refusal.stamp && (welcome?.stamp ?? endedAt) > refusal.stamp
      const isAlive = heard.some(({ stamp, frame }) => frame.type === 'pong' && isRecent(stamp))
      return isAlive || isNew || isPending
    })
    if (!isDriven) yield { invariant: 'I7', message: `link ${link} was refused: in use by nobody` }
  }
}

/** What the log has of an attachment was said on a connection that was its own then. */
function* checkAuthors({ logs, links }: WireFacts): Generator<Violation> {
  for (const { id, events } of logs.values()) {
    for (const event of events) {
      const what = `${id}: ${event.type} at ${event.seq}`
      if ('keys' in event) {
        for (const { key } of event.keys ?? []) {
          const [attachment = '', request = ''] = key.split('/')
          if (isHeard(links, attachment, (frame) => frame['id'] === request)) continue
          yield { invariant: 'I6', message: `${what}: nobody said ${key} while it was attached` }
        }
      }
      if (event.type === 'ask.settled' && event.outcome === 'answered') {
        const { ask, attachment = '' } = event
        if (isHeard(links, attachment, (frame) => frame['ask'] === ask)) continue
        const who = `${what}: ${attachment}`
        yield { invariant: 'I6', message: `${who} did not answer while it was attached` }
      }
    }
  }
}

function isHeard(
  links: readonly LinkFacts[],
  attachment: string,
  fits: (frame: Readonly<Record<string, unknown>>) => boolean,
): boolean {
  return links.some(
    ({ welcome, heard }) =>
      welcome?.frame.attachment === attachment &&
      heard.some(({ stamp, frame }) => stamp > welcome.stamp && fits(frame)),
  )
}

const NEVER = ['bad_request', 'ahead', 'forbidden', 'version_unsupported']
const NEVER_ALONE = ['token_reused', 'unauthorized', 'attachment_unknown']
const NEVER_SHARED = ['superseded', 'in_use']

/** A page that nobody else has a copy of always finds its place, or learns that it is over. */
function* checkLockedOut({ logs }: WireFacts, page: PageFacts): Generator<Violation> {
  const session = sessionOf(page)
  const isExclusive = logs.get(session ?? '')?.last?.exclusive !== false
  for (const { code, at } of page.states) {
    const what = `${page.begun.page} of ${session} ended at ${Math.round(at)} ms with ${code}`
    if (code === null) continue
    const isAlone = !page.isCopied && NEVER_ALONE.includes(code)
    const isShared = !page.isCopied && !isExclusive && NEVER_SHARED.includes(code)
    if (NEVER.includes(code) || isAlone || isShared) yield { invariant: 'I6', message: what }
  }
}

/** The session that a page is about: the one that it was let into, or asked for. */
export function sessionOf({ states, links }: PageFacts): string | null {
  const live = states.find(({ session }) => session !== null)
  const wanted = links.find(({ hello }) => typeof hello?.frame['session'] === 'string')
  return live?.session ?? (wanted?.hello?.frame['session'] as string | undefined) ?? null
}
