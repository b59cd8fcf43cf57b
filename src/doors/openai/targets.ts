/**
 * The session that a request's turn runs in: that of a key, that of an earlier response, or one of
 * its own. Each knows how to start the turn, and how to find the turn of a repeated request.
 *
 * Here are also the names by which this door calls sessions and turns.
 */
import {
  HoldfastError,
  idempotencyMismatch,
  inputDigest,
  invalid,
  type Holdfast,
  type GivenInput,
  type ResolveOptions,
  type SessionEvent,
  type SessionHandle,
  type SessionRef,
  type SessionStatus,
  type TurnHandle,
  type TurnOptions,
} from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'
import { visibleRef } from '../route.ts'
import { conversationFacts, isError } from './conversation-facts.ts'
import { presentItems } from './items.ts'
import { afterItems } from './messages.ts'
import { isDeleted } from './notes.ts'
import type { ChatBody, ResponseBody } from './schemas.ts'

export type TargetedTurn = {
  readonly input: GivenInput
  /** With the key that the turn is known by from now on. */
  readonly options: TurnOptions & { readonly idempotencyKey: string }
  /** Recorded in the queue, and answered at once. */
  readonly isBackground: boolean
}

/** A turn that has started, waits in the log, or was found. */
export type AdmittedTurn = { readonly session: SessionHandle; readonly turn: string }

export type TurnTarget = {
  /** Differs between any two sessions. */
  readonly name: string
  /** What of the request is new: with a session key, clients repeat the whole conversation. */
  readonly takes: 'all' | 'newest'
  /** Whether what was said in this session is known in the turn's session. */
  readonly remembers: (session: string) => Promise<boolean>
  /** The session; `key` chooses the key that the turn is known by. */
  readonly session: (key: () => Promise<string>) => Promise<SessionRef>
  /** A key for a request that has not been here before. */
  readonly newKey: (digest: string) => Promise<string>
  /** The keys that requests like this one had here not long ago, as the log has them. */
  readonly earlierKeys: (digest: string) => Promise<readonly string[]>
  readonly enter: (turn: TargetedTurn) => Promise<AdmittedTurn>
}

/** How long after its end a turn is still what a retry may be about. */
const RETRY_MS = 600_000
/** How long ago a request without a session may have begun, to be found after a restart. */
const BEGUN_MS = 3_600_000
const MINUTE_MS = 60_000
/** How the keys begin that requests get which have none of their client's. */
const OWN_KEY = 'retry:'
/** Ends a session of one request that was not closed after its turn. */
const OWN_TTL_MS = 60_000
const PAGE = 256
/** Of a session whose turn neither runs nor waits. */
const OVER: readonly SessionStatus[] = ['idle', 'failed', 'closed']
export const KEY_HEADER = 'x-session-key'
const PREVIOUS = 'previous_response_id'
const RESPONSE = /^resp_([\w.:~-]+)_(t[1-9]\d{0,14})$/

export function chatTarget(exchange: Exchange, { model }: ChatBody): TurnTarget {
  const key = sessionKey(exchange)
  const agent = model ?? undefined
  if (key === undefined) return ownTarget(exchange, agent, false)
  return keyTarget(exchange.holdfast, { key, agent })
}

export async function responseTarget(exchange: Exchange, body: ResponseBody): Promise<TurnTarget> {
  const { holdfast } = exchange
  const key = sessionKey(exchange)
  const agent = body.model ?? undefined
  const previous = body.previous_response_id ?? undefined
  const conversation = conversationOf(body)
  if (conversation !== undefined && (key ?? previous) !== undefined) {
    throw invalid('conversation', `, ${PREVIOUS} and ${KEY_HEADER} exclude each other`)
  }
  if (previous !== undefined) {
    const after = readResponseId(previous)
    if (key === undefined || (await holdfast.find(key))?.id === after.session) {
      return chainTarget(holdfast, after, agent)
    }
    throw invalid(PREVIOUS, `is not in the session of ${KEY_HEADER}`)
  }
  if (key !== undefined) return keyTarget(holdfast, { key, agent })
  if (conversation === undefined) return ownTarget(exchange, agent, body.store !== false)
  return conversationTarget(exchange, conversation, agent)
}

export function conversationOf({ conversation }: Partial<ResponseBody>): string | undefined {
  return typeof conversation === 'string' ? conversation : conversation?.id
}

/** A header's bytes are UTF-8 for us, like everything else. */
function sessionKey(exchange: Exchange): string | undefined {
  const value = exchange.header(KEY_HEADER)
  if (value === undefined) return undefined
  if (value === '') throw invalid(KEY_HEADER, 'must not be empty')
  const text = Buffer.from(value, 'latin1').toString()
  return text.includes('\uFFFD') ? value : text
}

/** The session of a key, made with the first turn. */
function keyTarget(
  holdfast: Holdfast,
  options: ResolveOptions & { readonly key: string },
): TurnTarget {
  const { key } = options
  let known: Promise<SessionHandle | null> | null = null
  return {
    name: `key ${key}`,
    takes: 'newest',
    remembers: async (session) => {
      known ??= holdfast.find(key)
      return (await known)?.id === session
    },
    session: async () => holdfast.refOf(key),
    ...keysInSession(holdfast, () => holdfast.find(key)),
    enter: async ({ input, options: turnOptions, isBackground }) => {
      if (!isBackground) return admission(holdfast, holdfast.turn(options, input, turnOptions))
      const { session, turn } = await holdfast.submit(options, input, turnOptions)
      return { session: holdfast.session(session), turn: turn.id }
    },
  }
}

/**
 * The session of a conversation. Its first turn begins with the items that clients have put into
 * the conversation before; so does its retry, which must say the same.
 */
async function conversationTarget(
  exchange: Exchange,
  key: string,
  agent: string | undefined,
): Promise<TurnTarget> {
  const { holdfast } = exchange
  const { id, labels } = await conversationFacts(exchange, key)
  const target = keyTarget(holdfast, { key, agent, labels, ttlMs: null })
  return {
    ...target,
    takes: 'all',
    remembers: async (session) => session === id || target.remembers(session),
    enter: async (turn) => {
      const session = await holdfast.find(key)
      const first = session === null ? null : await turnAfter(session, 't0')
      if (first !== null && !hasKey(first, turn)) return target.enter(turn)
      const items = await presentItems(holdfast.session(id))
      return target.enter({ ...turn, input: afterItems(items, turn.input) })
    },
  }
}

/** Whether this turn is what the request has become, at an earlier attempt. */
function hasKey({ keys }: AdmissionEvent, { options }: TargetedTurn): boolean {
  return keys?.some(({ key }) => key === options.idempotencyKey) === true
}

/** A session that is there, after one of its turns: the last. The log has no branches. */
function chainTarget(
  holdfast: Holdfast,
  { session: id, turn: after }: ReturnType<typeof readResponseId>,
  agent: string | undefined,
): TurnTarget {
  const session = holdfast.session(id)
  return {
    name: `session ${id}`,
    takes: 'all',
    remembers: async (other) => other === id,
    session: async () => visibleRef(session, 'turn.run'),
    ...keysInSession(holdfast, async () => session),
    enter: async (turn) => {
      await assertAgent(session, agent)
      const { endedAt } = await session.getTurn(after)
      if (await isDeleted(session, after)) throw responseUnknown(`resp_${id}_${after}`)
      if (endedAt === null) throw invalid(PREVIOUS, 'is the id of a response that is not over')
      const next = await turnAfter(session, after)
      if (next === null || hasKey(next, turn)) return enterSession(holdfast, session, turn)
      throw invalid(
        PREVIOUS,
        'must be the last response of its conversation: Holdfast keeps one line, without branches',
      )
    },
  }
}

type AdmissionEvent = Extract<SessionEvent, { type: 'turn.queued' | 'turn.started' }>

async function turnAfter(session: SessionHandle, turn: string): Promise<AdmissionEvent | null> {
  let after = Number(turn.slice(1))
  for (;;) {
    const { row, events, position } = await session.read(after, PAGE)
    const admitted = events.map(({ body }) => admissionIn(body))
    const next = admitted.find((event) => event !== null && event.turn !== turn)
    if (next) return next
    after = position
    if (after >= (row?.seq ?? 0)) return null
  }
}

function admissionIn(body: string): AdmissionEvent | null {
  const event = JSON.parse(body) as SessionEvent
  return event.type === 'turn.queued' || event.type === 'turn.started' ? event : null
}

async function assertAgent(session: SessionHandle, wanted: string | undefined): Promise<void> {
  const { id, agent } = await session.state()
  if (wanted === undefined || wanted === agent) return
  throw new HoldfastError('agent_mismatch', `session ${id} belongs to agent ${agent}`, { agent })
}

async function enterSession(
  holdfast: Holdfast,
  session: SessionHandle,
  { input, options, isBackground }: TargetedTurn,
): Promise<AdmittedTurn> {
  if (!isBackground) return admission(holdfast, session.turn(input, options))
  return { session, turn: (await session.submit(input, options)).id }
}

async function admission(holdfast: Holdfast, handle: TurnHandle): Promise<AdmittedTurn> {
  const { live, turn } = await handle.admission
  return { session: holdfast.session(live.id), turn }
}

/** The keys of requests for turns of one session: a random one each, found by their digest. */
function keysInSession(
  { authority }: Holdfast,
  find: () => Promise<SessionHandle | null>,
): Pick<TurnTarget, 'newKey' | 'earlierKeys'> {
  return {
    newKey: async (digest) => `${OWN_KEY}${digest}:${authority.entropy.id()}`,
    /** Of turns that wait, run, or were over not long ago; the newest first. */
    earlierKeys: async (digest) => {
      const session = await find()
      const now = authority.clock.now()
      const keys: string[] = []
      for (const { key, turn } of (await session?.requestKeys(`${OWN_KEY}${digest}:`)) ?? []) {
        const endedAt = (await session?.getTurn(turn))?.endedAt ?? now
        if (now - endedAt <= RETRY_MS) keys.push(key)
      }
      return keys
    },
  }
}

/**
 * A session for one request alone. It is internal, so that lists stay clean, and closed after its
 * turn unless others may follow it up (`isKept`). Its id follows from the caller's credentials, so
 * that no other caller gets it, and from the request's key: so the request finds it again, also
 * after the server was started anew (I11).
 */
function ownTarget(exchange: Exchange, agent: string | undefined, isKept: boolean): TurnTarget {
  const { holdfast } = exchange
  const { authority } = holdfast
  const caller = exchange.header('authorization') ?? ''
  const idOf = (key: string): string => `once.${authority.digest(JSON.stringify([caller, key]))}`
  /** Whether this call made it; false too if it is over, or another node's. */
  const open = async (key: string, first: Partial<TargetedTurn> = {}): Promise<boolean> => {
    const ttlMs = isKept ? undefined : OWN_TTL_MS
    const options = { id: idOf(key), internal: true, ttlMs, agent }
    try {
      return (await holdfast.resolveReserved(options, first)).isNew
    } catch (error) {
      // Erased, if its response was deleted.
      const gone = ['session_closed', 'session_erased', 'not_owner'] as const
      if (gone.some((code) => isError(error, code))) return false
      throw error
    }
  }
  /** The keys that such a request gets in this minute and those before. */
  const minuteKeys = (digest: string): readonly string[] => {
    const minute = Math.floor(authority.clock.now() / MINUTE_MS)
    const length = BEGUN_MS / MINUTE_MS + 1
    return Array.from({ length }, (_, ago) => `${OWN_KEY}${digest}:${minute - ago}`)
  }
  return {
    name: 'own',
    takes: 'all',
    remembers: async () => false,
    session: async (key) => ({ id: idOf(await key()) }),
    /** One that a retry can guess, unless the same was asked this very minute. */
    newKey: async (digest) => {
      const [key = ''] = minuteKeys(digest)
      return (await open(key)) ? key : `${key}.${authority.entropy.id()}`
    },
    earlierKeys: async (digest) => {
      const now = authority.clock.now()
      const keys = minuteKeys(digest)
      const found = await Promise.all(keys.map((key) => authority.store.read(idOf(key), 0, 0)))
      return keys.filter((_, index) => {
        const row = found[index]?.row ?? null
        if (row === null || row.seq === 1) return false
        return !OVER.includes(row.status) || now - row.updatedAt <= RETRY_MS
      })
    },
    enter: async (turn) => {
      const { idempotencyKey: key } = turn.options
      const session = holdfast.session(idOf(key))
      try {
        if (!(await open(key, isOwn(key) ? {} : turn))) await assertAgent(session, agent)
        const entered = await enterSession(holdfast, session, turn)
        if (!isKept) closeAfter(holdfast, entered)
        return entered
      } catch (error) {
        if (!isError(error, 'session_closed')) {
          // It was made for this request. If this fails, its time to live ends it. One by a key of
          // the client stays: an erased id is never given out again, and the client may try again.
          if (isOwn(key)) await authority.discard(session.id).catch(() => undefined)
          throw error
        }
        const digest = inputDigest(turn.input, turn.options, authority)
        return { session, turn: await onlyTurn(session, key, digest) }
      }
    },
  }
}

/** The turn of a session that is closed by now, if it was about the same. */
async function onlyTurn(session: SessionHandle, key: string, digest: string): Promise<string> {
  const { events } = await session.read(1, 1)
  const [first] = events.map(({ body }) => admissionIn(body))
  if (!first) {
    throw new HoldfastError('session_closed', 'the request was given up before it was begun')
  }
  if (first.keys?.some((known) => known.key === key && known.digest === digest)) return first.turn
  throw idempotencyMismatch(key)
}

function isOwn(key: string): boolean {
  return key.startsWith(OWN_KEY)
}

function closeAfter({ authority }: Holdfast, { session, turn }: AdmittedTurn): void {
  // If it cannot be closed now, its time to live ends it.
  session
    .finished(turn)
    .then(() => authority.close(session.id, 'turn_over', null))
    .catch(() => undefined)
}

export function readResponseId(response: string) {
  const [, session, turn] = RESPONSE.exec(response) ?? []
  if (session !== undefined && turn !== undefined) return { session, turn }
  throw responseUnknown(response)
}

export function responseUnknown(response: string): HoldfastError {
  return new HoldfastError('turn_unknown', `there is no response ${response}`)
}
