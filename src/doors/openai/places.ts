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
    await this.#assertLast(session, visit.options.idempotencyKey)
    return enterSession(this.#holdfast, session, visit)
  }

  /** Throws if another turn came after; one that this very request has become is no other. */
  async #assertLast(session: SessionHandle, key: string): Promise<void> {
    const begin = Number(this.#after.slice(1))
    const { endedAt } = await session.getTurn(this.#after)
    let after = begin
    for (;;) {
      const { row, events } = await session.read(after, 256)
      for (const { body, seq } of events) {
        const event = JSON.parse(body) as Turned
        const isOther =
          event.turn !== this.#after && event.keys?.some((own) => own.key === key) !== true
        if (/^turn\.(started|queued)$/.test(event.type) && isOther) throw notLast()
        after = seq
      }
      if (events.length === 0 || after >= (row?.seq ?? 0)) break
    }
    if (endedAt === null) throw invalid('previous_response_id', 'is of a response that is not over')
  }
}

type Turned = {
  readonly type: string
  readonly turn?: string
  readonly keys?: readonly { readonly key: string }[]
}

function notLast(): HoldfastError {
  return invalid(
    'previous_response_id',
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
  const { running, queued, recent } = await session.state()
  const isSame = ({ key }: { readonly key: string }): boolean => key.startsWith(retryPrefix(digest))
  const pending = running === null ? queued : [running, ...queued]
  const keys = pending.flatMap((turn) => turn.keys.filter(isSame)).map(({ key }) => key)
  for (const { key, turn } of recent.filter(isSame)) {
    const { endedAt } = await session.getTurn(turn)
    if (holdfast.authority.clock.now() - (endedAt ?? 0) <= RETRY_MS) keys.push(key)
  }
  return keys.toReversed()
}
