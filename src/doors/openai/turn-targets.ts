/**
 * The session that a request's turn runs in: that of a key, that of an earlier response, or one of
 * its own (`own-target.ts`). Each knows how to start the turn, and how to find the turn of a
 * repeated request.
 */
import {
  HoldfastError,
  invalid,
  type Holdfast,
  type Input,
  type ResolveOptions,
  type Session,
  type SessionRef,
  type SessionEvent,
  type SessionHandle,
  type TurnHandle,
  type TurnOptions,
} from '../../core/index.ts'

export type TargetedTurn = {
  readonly input: Input
  /** With the key that the turn is known by from now on. */
  readonly options: TurnOptions & { readonly idempotencyKey: string }
  /** Recorded in the queue, not waited for. */
  readonly isBackground: boolean
}

/** A turn that has started, waits in the log, or was found. */
export type AdmittedTurn = { readonly session: SessionHandle; readonly turn: string }

export interface TurnTarget {
  /** Differs between any two sessions. */
  readonly name: string
  /** The session; `key` chooses the key that the turn is known by. */
  session(key: () => Promise<string>): Promise<SessionRef>
  /** A key for a request that has not been here before. */
  newKey(digest: string): Promise<string>
  /** The keys that requests like this one had here not long ago, as the log has them. */
  earlierKeys(digest: string): Promise<readonly string[]>
  enter(visit: TargetedTurn): Promise<AdmittedTurn>
}

/** How long after its end a turn is still what a retry may be about. */
const RETRY_MS = 600_000
/** Events read at once. */
const PAGE = 256
const PREVIOUS = 'previous_response_id'

/** The session of a key, made with the first turn. */
export class KeyTarget implements TurnTarget {
  readonly name: string
  readonly #holdfast: Holdfast
  readonly #options: ResolveOptions & { readonly key: string }

  constructor(holdfast: Holdfast, options: ResolveOptions & { readonly key: string }) {
    this.name = `key ${options.key}`
    this.#holdfast = holdfast
    this.#options = options
  }

  async session(): Promise<SessionRef> {
    return { key: this.#options.key }
  }

  async newKey(digest: string): Promise<string> {
    return newRetryKey(this.#holdfast, digest)
  }

  async earlierKeys(digest: string): Promise<readonly string[]> {
    const session = await this.#holdfast.find(this.#options.key)
    return session === null ? [] : retryKeys(this.#holdfast, session, digest)
  }

  async enter({ input, options, isBackground }: TargetedTurn): Promise<AdmittedTurn> {
    const holdfast = this.#holdfast
    if (!isBackground) return admission(holdfast, holdfast.turn(this.#options, input, options))
    const { session, turn } = await holdfast.submit(this.#options, input, options)
    return { session: holdfast.session(session), turn: turn.id }
  }
}

/** A session that is there, after one of its turns: the last. The log has no branches. */
export class ChainTarget implements TurnTarget {
  readonly name: string
  readonly #holdfast: Holdfast
  readonly #id: string
  readonly #after: string
  readonly #agent: string | undefined

  constructor(
    holdfast: Holdfast,
    { id, after, agent }: { id: string; after: string; agent: string | undefined },
  ) {
    this.name = `session ${id}`
    this.#holdfast = holdfast
    this.#id = id
    this.#after = after
    this.#agent = agent
  }

  async newKey(digest: string): Promise<string> {
    return newRetryKey(this.#holdfast, digest)
  }

  async session(): Promise<SessionRef> {
    return { id: this.#id }
  }

  earlierKeys(digest: string): Promise<readonly string[]> {
    return retryKeys(this.#holdfast, this.#holdfast.session(this.#id), digest)
  }

  async enter(visit: TargetedTurn): Promise<AdmittedTurn> {
    const session = this.#holdfast.session(this.#id)
    assertAgent(await session.state(), this.#agent)
    const { endedAt } = await session.getTurn(this.#after)
    if (endedAt === null) throw invalid(PREVIOUS, 'is the id of a response that is not over')
    const next = await this.#nextTurn(session)
    // What this very request has become is no other turn.
    const isOwn = next?.keys?.some(({ key }) => key === visit.options.idempotencyKey) === true
    if (next !== null && !isOwn) throw notLast()
    return enterSession(this.#holdfast, session, visit)
  }

  /** What was admitted after it, if anything. */
  async #nextTurn(session: SessionHandle): Promise<AdmissionEvent | null> {
    let after = Number(this.#after.slice(1))
    for (;;) {
      const { row, events } = await session.read(after, PAGE)
      const next = events
        .map(({ body }) => JSON.parse(body) as SessionEvent)
        .find((event) => isAdmission(event) && event.turn !== this.#after)
      if (next !== undefined) return next as AdmissionEvent
      after = events.at(-1)?.seq ?? row?.seq ?? after
      if (after >= (row?.seq ?? 0)) return null
    }
  }
}

type AdmissionEvent = Extract<SessionEvent, { type: 'turn.queued' | 'turn.started' }>

function isAdmission(event: SessionEvent): event is AdmissionEvent {
  return event.type === 'turn.queued' || event.type === 'turn.started'
}

function notLast(): HoldfastError {
  return invalid(
    PREVIOUS,
    'must be the last response of its conversation: Holdfast keeps one line, without branches',
  )
}

export function assertAgent({ id, agent }: Session, wanted: string | undefined): void {
  if (wanted === undefined || wanted === agent) return
  throw new HoldfastError('agent_mismatch', `session ${id} belongs to agent ${agent}`, { agent })
}

export async function enterSession(
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

const retryPrefix = (digest: string): string => `retry:${digest}:`

function newRetryKey({ authority }: Holdfast, digest: string): string {
  return `${retryPrefix(digest)}${authority.entropy.id()}`
}

/** The keys of such requests that wait, run, or were over not long ago; the newest first. */
async function retryKeys(
  holdfast: Holdfast,
  session: SessionHandle,
  digest: string,
): Promise<readonly string[]> {
  const now = holdfast.authority.clock.now()
  const keys: string[] = []
  for (const { key, turn } of await session.requestKeys(retryPrefix(digest))) {
    const { endedAt } = await session.getTurn(turn)
    if (now - (endedAt ?? now) <= RETRY_MS) keys.push(key)
  }
  return keys
}
