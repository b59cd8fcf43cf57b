/**
 * Where a request's turn goes: the session of a key, a session that is there, or one of its own
 * (`own-place.ts`). Each knows how to enter, and how to find the turn of a request that is
 * repeated.
 */
import {
  HoldfastError,
  invalid,
  type Holdfast,
  type Input,
  type ResolveOptions,
  type Session,
  type SessionEvent,
  type SessionHandle,
  type TurnHandle,
  type TurnOptions,
} from '../../core/index.ts'

export type Visit = {
  readonly input: Input
  /** With the key that the turn is known by from now on. */
  readonly options: TurnOptions & { readonly idempotencyKey: string }
  /** Recorded in the queue, not waited for. */
  readonly isBackground: boolean
}

/** A turn that has started, waits in the log, or was found. */
export type Admitted = { readonly session: SessionHandle; readonly turn: string }

export interface Place {
  /** What tells it from other places. */
  readonly name: string
  /** A key for a request that has not been here before. */
  newKey(digest: string): Promise<string>
  /** The keys that requests like this one had here not long ago, as the log has them. */
  earlierKeys(digest: string): Promise<readonly string[]>
  enter(visit: Visit): Promise<Admitted>
}

/** How long after its end a turn is still what a retry may be about. */
const RETRY_MS = 600_000
/** Events read at once. */
const PAGE = 256
const PREVIOUS = 'previous_response_id'

/** The session of a key, made with the first turn. */
export class KeyPlace implements Place {
  readonly name: string
  readonly #holdfast: Holdfast
  readonly #options: ResolveOptions & { readonly key: string }

  constructor(holdfast: Holdfast, options: ResolveOptions & { readonly key: string }) {
    this.name = `key ${options.key}`
    this.#holdfast = holdfast
    this.#options = options
  }

  async newKey(digest: string): Promise<string> {
    return newRetryKey(this.#holdfast, digest)
  }

  async earlierKeys(digest: string): Promise<readonly string[]> {
    const { key } = this.#options
    const { sessions } = await this.#holdfast.list({ key, state: 'open', limit: 1 })
    const [row] = sessions
    return row === undefined ? [] : retryKeys(this.#holdfast, row.id, digest)
  }

  async enter({ input, options, isBackground }: Visit): Promise<Admitted> {
    const holdfast = this.#holdfast
    if (!isBackground) return admission(holdfast, holdfast.turn(this.#options, input, options))
    const { session, turn } = await holdfast.submit(this.#options, input, options)
    return { session: holdfast.session(session), turn: turn.id }
  }
}

/** A session that is there, after one of its turns: the last. The log has no branches. */
export class ChainPlace implements Place {
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

  earlierKeys(digest: string): Promise<readonly string[]> {
    return retryKeys(this.#holdfast, this.#id, digest)
  }

  async enter(visit: Visit): Promise<Admitted> {
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
  async #nextTurn(session: SessionHandle): Promise<Admission | null> {
    let after = Number(this.#after.slice(1))
    for (;;) {
      const { row, events } = await session.read(after, PAGE)
      const next = events
        .map(({ body }) => JSON.parse(body) as SessionEvent)
        .find((event) => isAdmission(event) && event.turn !== this.#after)
      if (next !== undefined) return next as Admission
      after = events.at(-1)?.seq ?? row?.seq ?? after
      if (after >= (row?.seq ?? 0)) return null
    }
  }
}

type Admission = Extract<SessionEvent, { type: 'turn.queued' | 'turn.started' }>

function isAdmission(event: SessionEvent): event is Admission {
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
  { input, options, isBackground }: Visit,
): Promise<Admitted> {
  if (!isBackground) return admission(holdfast, session.turn(input, options))
  return { session, turn: (await session.submit(input, options)).id }
}

async function admission(holdfast: Holdfast, handle: TurnHandle): Promise<Admitted> {
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
  id: string,
  digest: string,
): Promise<readonly string[]> {
  const session = holdfast.session(id)
  const now = holdfast.authority.clock.now()
  const keys: string[] = []
  for (const { key, turn } of await session.requestKeys(retryPrefix(digest))) {
    const { endedAt } = await session.getTurn(turn)
    if (now - (endedAt ?? now) <= RETRY_MS) keys.push(key)
  }
  return keys
}
