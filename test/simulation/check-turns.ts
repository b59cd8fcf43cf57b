/** I2, I3 and I11 as runners and callers saw them. */
import { inputText, isTerminal } from '../../src/core/turns.ts'
import type { SessionEvent } from '../../src/core/events.ts'
import type { Violation } from './checker.ts'
import { grouped, wanted, type Done, type Facts, type Log, type RunFacts } from './facts.ts'
import type { History } from './history.ts'

type Request = Done<'turn' | 'submit'>

/** Of two runs of one session the first was over, or had been told so, before the second began. */
export function* checkRuns(facts: Facts): Generator<Violation> {
  const frozen = frozenTimes(facts.history)
  if (!facts.history.forgetsLeases) yield* checkLeases(facts, frozen)
  const bySession = grouped(facts.runs, ({ begun }) => begun.session)
  for (const [session, runs] of bySession) {
    for (const [index, second] of runs.entries()) {
      const first = runs.slice(0, index).find((run) => overlaps(run, second, frozen))
      if (first !== undefined && !facts.history.forgetsLeases) {
        const names = [first, second].map(({ begun }) => `${begun.turn} on ${begun.node}`)
        yield { invariant: 'I2', message: `${session}: ${names.join(' runs while ')} begins` }
      }
      const again = runs.slice(0, index).some(({ begun }) => begun.turn === second.begun.turn)
      if (again) yield { invariant: 'I11', message: `${session}: ${second.begun.turn} runs twice` }
    }
  }
  yield* checkBegun(facts)
}

function overlaps(first: RunFacts, { begun }: RunFacts, frozen: readonly Span[]): boolean {
  if (first.overAt < begun.stamp) return false
  return !frozen.some(
    ({ node, from, untilMs }) =>
      node === first.begun.node && from < begun.stamp && begun.at <= untilMs,
  )
}

/** A node was frozen from a stamp on, until it had had a moment to come to its senses. */
type Span = {
  readonly node: string
  readonly from: number
  readonly fromMs: number
  untilMs: number
}

function frozenTimes(history: History): readonly Span[] {
  const spans: Span[] = []
  for (const happening of history.happenings) {
    if (happening.type === 'node.frozen') {
      const { node, stamp: from, at: fromMs } = happening
      spans.push({ node, from, fromMs, untilMs: Infinity })
    } else if (happening.type === 'node.thawed') {
      const span = spans.findLast(({ node }) => node === happening.node)
      if (span !== undefined) span.untilMs = happening.at
    }
  }
  return spans
}

/**
 * I5: what runs on a node is told to stop before the node's lease ends, or when it can think again.
 */
function* checkLeases({ history, runs }: Facts, frozen: readonly Span[]): Generator<Violation> {
  const beats = history.of('store.leased')
  for (const { begun, overAt } of runs) {
    const own = beats.filter(({ node }) => node === begun.node)
    const overMs = history.happenings[overAt - 1]?.at ?? Infinity
    let untilMs = -Infinity
    for (const beat of own.filter(({ at }) => at <= overMs)) {
      if (beat.at > untilMs && beat.at > begun.at) break
      untilMs = beat.untilMs
    }
    const isFrozen = frozen.some(
      ({ node, from, fromMs, untilMs: thawedMs }) =>
        node === begun.node && begun.stamp < from && fromMs <= untilMs && overMs <= thawedMs,
    )
    if (Math.max(begun.at, overMs === Infinity ? begun.at : overMs) <= untilMs || isFrozen) continue
    const what = `${begun.session}: ${begun.turn} runs on ${begun.node}`
    yield { invariant: 'I5', message: `${what}, whose lease ended at ${untilMs} ms` }
  }
}

/** A run begins only after its `turn.started` is in the log, with the input that the log has. */
function* checkBegun({ runs, logs }: Facts): Generator<Violation> {
  for (const { begun } of runs) {
    const started = logs
      .get(begun.session)
      ?.events.find((event) => event.type === 'turn.started' && event.turn === begun.turn)
    const what = `${begun.session}: ${begun.turn} runs on ${begun.node}`
    if (started?.type !== 'turn.started') {
      yield { invariant: 'I2', message: `${what} without having started in the log` }
    } else if (inputText(started.input) !== begun.text) {
      yield { invariant: 'I3', message: `${what} with another input than its own` }
    }
  }
}

/**
 * I11: a message is given to an agent once, in a turn that runs or as a turn of its own. A request
 * by key whose session was closed meanwhile is another's in the next session.
 */
export function* checkSteered({ history, runs }: Facts): Generator<Violation> {
  const given = new Set<string>()
  for (const { session, text } of history.of('run.steered')) {
    const own = runs.filter(({ begun }) => begun.session === session)
    const isTwice = given.has(`${session} ${text}`) || own.some((run) => run.begun.text === text)
    if (isTwice) yield { invariant: 'I11', message: `${session}: ${text} was given twice` }
    given.add(`${session} ${text}`)
  }
}

export function* checkRequests(facts: Facts): Generator<Violation> {
  const requests = wanted(facts, 'turn', 'submit')
  for (const request of requests) {
    yield* checkAnswer(facts, request)
    yield* checkRefusal(facts, request, requests)
  }
  for (const log of facts.logs.values()) {
    yield* checkKeys(log)
    yield* checkInterrupted(log)
  }
  yield* checkArrivals(facts, requests)
  for (const { operation, outcome } of wanted(facts, 'cancel')) {
    // Who believes in a lease that is forgotten may answer from what it knew.
    if (outcome?.ok !== true || facts.history.forgetsLeases) continue
    const state = stateOf(facts.logs.get(operation.session), operation.turn)
    if (state !== outcome.state) {
      const what = `cancel of ${operation.turn} in ${operation.session}`
      yield { invariant: 'I3', message: `${what} was told ${outcome.state}, the log says ${state}` }
    }
  }
}

/** I3, I4: what a caller was told is in the log, and is about its own request. */
function* checkAnswer({ logs }: Facts, { operation, outcome, op }: Request): Generator<Violation> {
  const { nonce, kind } = operation
  if (outcome?.ok === false && outcome.code === 'turn_unknown') {
    yield {
      invariant: 'I3',
      message: `${kind} ${op} (${nonce}) was given a turn that is not there`,
    }
  }
  if (outcome?.ok !== true) return
  const log = logs.get(outcome.session ?? '')
  const events = log?.events.filter((event) => isOf(event, outcome.turn ?? '')) ?? []
  const what = `${kind} ${op} (${nonce}) in ${outcome.session}`
  if (!events.some((event) => inputOf(event).includes(nonce))) {
    yield { invariant: 'I3', message: `${what} was given ${outcome.turn}, which is not its own` }
  }
  if (kind === 'submit') return
  const state = stateOf(log, outcome.turn ?? '')
  if (state !== outcome.state) {
    yield { invariant: 'I4', message: `${what} was told ${outcome.state}, the log says ${state}` }
  }
  const messages = events.flatMap((event) => (event.type === 'message.added' ? [event.text] : []))
  if ((messages.at(-1) ?? null) !== outcome.reply) {
    yield { invariant: 'I3', message: `${what} was told ${outcome.reply}, the log has another` }
  }
  if (state === 'done' && !messages.some((text) => text.includes(nonce))) {
    yield { invariant: 'I3', message: `${what} got the reply ${messages.join(' + ')}` }
  }
  if (typeof outcome.iterated === 'string' && !isHeard(outcome.iterated, messages, state)) {
    const heard = JSON.stringify(outcome.iterated)
    const said = JSON.stringify(messages.join(''))
    yield { invariant: 'I4', message: `${what} heard ${heard}, but the turn said ${said}` }
  }
}

/** The parts are the whole; of a turn that was cut short there may have been more than was kept. */
function isHeard(heard: string, messages: readonly string[], state: string | null): boolean {
  const said = messages.join('')
  return state === 'done' || state === 'failed' ? heard === said : heard.startsWith(said)
}

/** With these nothing has happened: the session was busy, or the request was taken back. */
const NOTHING_HAPPENED: ReadonlySet<string> = new Set(['session_busy', 'cancelled', 'not_owner'])

/** I11: a request that was refused with 429, or cancelled while it waited, left no trace. */
function* checkRefusal(
  { logs }: Facts,
  { operation, outcome, op, codes }: Request,
  all: readonly Request[],
): Generator<Violation> {
  const { nonce, kind } = operation
  if (outcome?.ok !== false || outcome.code === 'not_owner') return
  if (!NOTHING_HAPPENED.has(outcome.code)) return
  if (outcome.code === 'session_busy' && outcome.position === undefined) {
    const message = `${kind} ${op} (${nonce}) was refused, but not by a bound of the queue`
    yield { invariant: 'I11', message }
  }
  const others = all.some((other) => other.op !== op && other.operation.nonce === nonce)
  if (others || codes.some((code) => !NOTHING_HAPPENED.has(code))) return
  for (const { id, events } of logs.values()) {
    const trace = events.find((event) => inputOf(event).includes(nonce))
    if (trace === undefined) continue
    const what = `${kind} ${op} (${nonce}) was refused with ${outcome.code}`
    const message = `${what}, but ${id} has it at ${trace.seq}`
    yield { invariant: 'I11', message }
  }
}

/** I4: of a turn that was interrupted all is kept that the log has of its output. */
function* checkInterrupted({ id, events }: Log): Generator<Violation> {
  let said = ''
  for (const event of events) {
    if (event.type === 'turn.started') said = ''
    else if (event.type === 'turn.output') said += event.text
    const isMessage = event.type === 'message.added'
    const isLost = isMessage ? event.partial === true && !event.text.startsWith(said) : said !== ''
    if (isLost && (isMessage || event.type === 'turn.interrupted')) {
      yield { invariant: 'I4', message: `${id}: of ${event.turn} ${said} is not kept` }
    }
    if (isMessage) said = ''
  }
}

/** I11: in one session an idempotency key has one turn and one body. */
function* checkKeys({ id, events }: Log): Generator<Violation> {
  const known = new Map<string, { turn: string; digest: string }>()
  for (const event of events) {
    if (!('keys' in event)) continue
    for (const { key, digest } of event.keys ?? []) {
      const first = known.get(key)
      known.set(key, { turn: event.turn, digest })
      // A turn that does not take a message leaves the key to the turn that the message becomes.
      const isRefused = event.type === 'turn.queued' && event.refusedBy === first?.turn
      if (first === undefined || isRefused) continue
      if (first.turn !== event.turn || first.digest !== digest) {
        const turns = `${first.turn} and ${event.turn}`
        yield { invariant: 'I11', message: `${id}: key ${key} has the turns ${turns}` }
      }
    }
  }
}

/**
 * I3: requests that reach a held session one after the other start in that order. Only such pairs
 * are judged of which the first was certainly in the lane when the second came.
 */
function* checkArrivals(facts: Facts, requests: readonly Request[]): Generator<Violation> {
  const keys = grouped(requests, ({ operation }) => operation.idempotencyKey)
  const placed = requests
    .filter(({ operation: { idempotencyKey: key } }) => key === null || keys.get(key)?.length === 1)
    .flatMap((request) => placeOf(facts, request) ?? [])
  for (const [session, all] of grouped(placed, (place) => place.session)) {
    const holds = holdsOf(facts.history, session)
    for (const first of all) {
      const hold = holds.findLast(({ from }) => from < first.stamp)
      if (hold === undefined || hold.node !== first.node || hold.until < first.stamp) continue
      const late = all.find(
        (second) =>
          second.at > first.at + 1 &&
          second.stamp < hold.until &&
          second.node === first.node &&
          second.startedAt < first.startedAt,
      )
      if (late === undefined) continue
      const message = `${session}: ${late.nonce} came after ${first.nonce}, but started first`
      yield { invariant: 'I3', message }
    }
  }
}

/** Where a request that was sent on at most, and has its own turn, came in. */
function placeOf({ logs }: Facts, { operation, outcome, tries, codes }: Request) {
  const last = tries.at(-1)
  if (outcome?.ok !== true || last === undefined) return null
  if (codes.some((code) => code !== 'not_owner')) return null
  // A message that steers does not wait for its place.
  if (operation.session === null || operation.busy === 'steer') return null
  const events = logs.get(operation.session)?.events ?? []
  const started = events.find(
    (event) => event.type === 'turn.started' && isOf(event, outcome.turn ?? ''),
  )
  if (started === undefined) return null
  // The log says where it was moved to: `checkLog` judges that.
  const queuedAt = events.findIndex(
    (event) => event.type === 'turn.queued' && isOf(event, outcome.turn ?? ''),
  )
  const waited = queuedAt < 0 ? [] : events.slice(queuedAt, events.indexOf(started))
  if (waited.some(({ type }) => type === 'turn.moved')) return null
  const { nonce, session } = operation
  return { session, nonce, node: last.node, stamp: last.stamp, at: last.at, startedAt: started.seq }
}

/**
 * From when to when a node held a session for certain: from the answer to its claim to the next.
 */
function holdsOf(history: History, session: string) {
  const holds: { node: string; from: number; until: number }[] = []
  const granted = new Set<number>()
  const end = (stamp: number): void => {
    const hold = holds.at(-1)
    if (hold !== undefined) hold.until = Math.min(hold.until, stamp)
  }
  for (const happening of history.happenings) {
    const { type, stamp } = happening
    if (type === 'store.replied') {
      if (!granted.has(happening.call) || happening.failed) continue
      holds.push({ node: happening.node, from: stamp, until: Infinity })
    } else if (!('session' in happening) || happening.session !== session) {
      continue
    } else if (type === 'store.created' || type === 'store.claimed') {
      granted.add(happening.call)
      end(stamp)
    } else if (type === 'store.sent' && holds.at(-1)?.node === happening.node) {
      // Its own new claim: it has let go of the session, whatever comes of that.
      if (happening.what === 'claim' || happening.what === 'reserve') end(stamp)
    }
  }
  return holds
}

function isOf(event: SessionEvent, turn: string): boolean {
  return 'turn' in event && event.turn === turn
}

function inputOf(event: SessionEvent): string {
  return 'input' in event ? inputText(event.input) : ''
}

function stateOf(log: Log | undefined, turn: string): string | null {
  const end = log?.events.find((event) => isOf(event, turn) && isTerminal(event))
  return end === undefined ? null : end.type.slice('turn.'.length)
}
