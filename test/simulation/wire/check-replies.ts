/**
 * I7: a reply reaches the one who asked. I3, I11: a request is done once, however often it was sent,
 * and its caller learns what came of it. I10: a lost connection cancels nothing.
 */
import type { SessionEvent } from '../../../src/core/events.ts'
import { inputText, isTerminal } from '../../../src/core/turns.ts'
import type { Violation } from '../checker.ts'
import type { Log } from '../facts.ts'
import { sessionOf } from './check-places.ts'
import type { LinkFacts, WireFacts, WishFacts } from './facts.ts'

export function* checkReplies(facts: WireFacts): Generator<Violation> {
  for (const link of facts.links) yield* checkLink(facts, link)
  for (const wish of facts.wishes) {
    if (wish.begun.kind === 'turn') yield* checkTurn(facts, wish)
    if (wish.begun.kind === 'close' || wish.begun.kind === 'cancel') yield* checkOver(facts, wish)
  }
  for (const log of facts.logs.values()) yield* checkCancelled(facts, log)
}

/** One reply for each request of this very socket, and about the turn that it became. */
function* checkLink({ logs }: WireFacts, link: LinkFacts): Generator<Violation> {
  const { welcome, said, heard } = link
  const open = new Map<string, number>()
  const requests = [...heard].filter(({ frame }) => typeof frame['id'] === 'string')
  const log = logs.get(welcome?.frame.session.id ?? '')
  for (const { stamp, frame } of said) {
    if (frame.type !== 'reply') continue
    const what = `link ${link.link} of ${link.by} got a reply to ${frame.id}`
    const asked = requests.filter((each) => each.stamp < stamp && each.frame['id'] === frame.id)
    const replied = (open.get(frame.id) ?? 0) + 1
    open.set(frame.id, replied)
    if (asked.length < replied) yield { invariant: 'I7', message: `${what}, which it did not ask` }
    if (!('turn' in frame) || asked[0]?.frame.type !== 'turn') continue
    const key = `${welcome?.frame.attachment}/${frame.id}`
    if (!log?.events.some((event) => isOf(event, frame.turn ?? '') && hasKey(event, key))) {
      yield { invariant: 'I7', message: `${what}: ${frame.turn} is not its turn` }
    }
  }
}

function* checkTurn({ logs, pages }: WireFacts, { begun, outcome }: WishFacts) {
  const { text, page, wish } = begun
  const what = `turn ${wish} (${text}) of ${page}`
  const found = [...logs.values()].flatMap((log) => turnsWith(log, text).map((id) => ({ log, id })))
  if (found.length > 1) {
    const all = found.map(({ id }) => id).join(' and ')
    yield { invariant: 'I11', message: `${what} is done more than once: ${all}` }
  }
  if (outcome === null) return
  if (!outcome.ok) {
    if (outcome.code === 'session_busy' && found.length > 0) {
      yield { invariant: 'I11', message: `${what} was refused with 429, but is in the log` }
    }
    const isThere = pages.some(({ begun: { page: name }, leftAt }) => name === page && leftAt > 1e9)
    if (outcome.code === 'turn_over' && isThere) {
      yield { invariant: 'I10', message: `${what} was given up: its caller is said to be gone` }
    }
    return
  }
  const own = found.find(({ id }) => id === outcome.turn)
  if (own === undefined) {
    yield { invariant: 'I3', message: `${what} was given ${outcome.turn}, which is not its own` }
    return
  }
  yield* checkResult(what, own.log, outcome)
}

function* checkResult(
  what: string,
  { events }: Log,
  outcome: NonNullable<WishFacts['outcome']> & { ok: true },
): Generator<Violation> {
  const own = events.filter((event) => isOf(event, outcome.turn ?? ''))
  const state = own.find(isTerminal)?.type.slice('turn.'.length) ?? null
  if (state !== outcome.state) {
    yield { invariant: 'I3', message: `${what} was told ${outcome.state}, the log says ${state}` }
  }
  const messages = own.flatMap((event) => (event.type === 'message.added' ? [event.text] : []))
  if ((messages.at(-1) ?? null) !== outcome.reply) {
    yield { invariant: 'I3', message: `${what} was told ${outcome.reply}, the log has another` }
  }
  const said = messages.join('')
  const isWhole = state === 'done' || state === 'failed'
  const { iterated } = outcome
  if (iterated === null || (isWhole ? iterated === said : iterated.startsWith(said))) return
  const heard = JSON.stringify(iterated)
  yield { invariant: 'I4', message: `${what} heard ${heard}, but it said ${JSON.stringify(said)}` }
}

/** What was told to be closed is closed, and what was told to be cancelled is over. */
function* checkOver({ logs, pages, history }: WireFacts, { begun, ended, outcome }: WishFacts) {
  if (outcome?.ok !== true || ended === null) return
  const { page, kind, text, wish } = begun
  const asking = pages.find(({ begun: { page: name } }) => name === page)
  const session = asking === undefined ? null : sessionOf(asking)
  // One that was never let in was told so by the refusal.
  if (session === null) return
  const events = logs.get(session)?.events ?? []
  const end = events.find((event) =>
    kind === 'close' ? event.type === 'session.closed' : isOf(event, text) && isTerminal(event),
  )
  const append = history
    .of('store.appended')
    .find(
      ({ session: id, after, count }) =>
        end !== undefined && id === session && after < end.seq && end.seq <= after + count,
    )
  if (append !== undefined && append.stamp < ended.stamp) return
  yield { invariant: 'I3', message: `${kind} ${wish} of ${page} was told to be done: it is not` }
}

/** Only who asked for it has its turn cancelled by going away, and only when it is gone for good. */
function* checkCancelled({ links, wishes }: WireFacts, log: Log): Generator<Violation> {
  for (const [index, event] of log.events.entries()) {
    if (event.type !== 'turn.cancelled') continue
    const what = `${log.id}: ${event.turn} is cancelled at ${event.seq}`
    if (event.reason === 'cancelled') {
      const isAsked = links.some(({ heard }) =>
        heard.some(({ frame }) => frame.type === 'cancel' && frame['turn'] === event.turn),
      )
      if (!isAsked) yield { invariant: 'I10', message: `${what}, but nobody asked for that` }
    }
    if (event.reason !== 'caller_gone') continue
    const own = log.events.filter((other) => isOf(other, event.turn))
    const inputs = own.flatMap((other) => ('input' in other ? [inputText(other.input)] : []))
    const mayBe = wishes.some(
      ({ begun }) =>
        begun.onDisconnect === 'cancel' && inputs.some((input) => input.includes(begun.text)),
    )
    if (!mayBe) yield { invariant: 'I10', message: `${what}, which nobody wanted` }
    const keys = own.flatMap((other) => ('keys' in other ? (other.keys ?? []) : []))
    const callers = keys.map(({ key }) => key.split('/')[0] ?? '')
    if (callers.every((caller) => isStillThere(links, log, index, caller))) {
      yield { invariant: 'I10', message: `${what}, but its caller may come back` }
    }
  }
}

function isStillThere(
  links: readonly LinkFacts[],
  { events, states }: Log,
  index: number,
  attachment: string,
): boolean {
  const held = states[index]?.attachments.find(({ id }) => id === attachment)
  const hasLeft = links.some(
    ({ welcome, heard }) =>
      welcome?.frame.attachment === attachment && heard.some(({ frame }) => frame.type === 'bye'),
  )
  if (held === undefined || hasLeft) return false
  return held.state === 'live' || (held.graceUntil ?? 0) > (events[index]?.at ?? 0)
}

function turnsWith({ events }: Log, text: string): readonly string[] {
  const turns = events.flatMap((event) =>
    'input' in event && inputText(event.input).includes(text) ? [event.turn] : [],
  )
  return [...new Set(turns)]
}

function isOf(event: SessionEvent, turn: string): boolean {
  return 'turn' in event && event.turn === turn
}

function hasKey(event: SessionEvent, wanted: string): boolean {
  return 'keys' in event && (event.keys ?? []).some(({ key }) => key === wanted)
}
