/**
 * A session for one request alone. It is internal, so that lists stay clean, and closed after its
 * turn unless others may follow it up. Its id follows from the caller and the request's key: so the
 * request finds it again, also after the server was started anew (I11).
 */
import {
  HoldfastError,
  type Holdfast,
  type SessionEvent,
  type SessionRef,
} from '../../core/index.ts'
import {
  assertAgent,
  enterSession,
  type AdmittedTurn,
  type TurnTarget,
  type TargetedTurn,
} from './turn-targets.ts'

/** How far back the retries of a request are recognised. */
const RETRY_MINUTES = 10
const MINUTE_MS = 60_000
/** Ends a session that was not closed after its turn. */
const TTL_MS = 60_000

export type OwnOptions = {
  /** The caller's credentials, a part of the session's id: no other caller gets this session. */
  readonly caller: string
  readonly agent: string | undefined
  /** It stays open, as long as sessions do. */
  readonly isKept: boolean
}

export class OwnTarget implements TurnTarget {
  readonly name = 'own'
  readonly #holdfast: Holdfast
  readonly #options: OwnOptions

  constructor(holdfast: Holdfast, options: OwnOptions) {
    this.#holdfast = holdfast
    this.#options = options
  }

  async session(key: () => Promise<string>): Promise<SessionRef> {
    return { id: this.#id(await key()) }
  }

  /** One that a retry can guess, unless the same was asked this very minute. */
  async newKey(digest: string): Promise<string> {
    const [key = ''] = this.#minuteKeys(digest)
    return (await this.#open(key)) ? key : `${key}.${this.#holdfast.authority.entropy.id()}`
  }

  async earlierKeys(digest: string): Promise<readonly string[]> {
    const found: string[] = []
    for (const key of this.#minuteKeys(digest)) if (await this.#isThere(key)) found.push(key)
    return found
  }

  async enter(visit: TargetedTurn): Promise<AdmittedTurn> {
    const { idempotencyKey: key } = visit.options
    const session = this.#holdfast.session(this.#id(key))
    try {
      if (!(await this.#open(key))) assertAgent(await session.state(), this.#options.agent)
      const entered = await enterSession(this.#holdfast, session, visit)
      if (!this.#options.isKept) closeAfter(this.#holdfast, entered)
      return entered
    } catch (error) {
      if (!isClosed(error)) throw error
      return { session, turn: await this.#onlyTurn(visit) }
    }
  }

  /** The keys that such a request gets in this minute and those before. */
  #minuteKeys(digest: string): readonly string[] {
    const minute = Math.floor(this.#holdfast.authority.clock.now() / MINUTE_MS)
    return Array.from({ length: RETRY_MINUTES + 1 }, (_, ago) => `retry:${digest}:${minute - ago}`)
  }

  #id(key: string): string {
    return `once.${this.#holdfast.authority.digest(JSON.stringify([this.#options.caller, key]))}`
  }

  /** Whether this call made it; false too if it is over, or another node's. */
  async #open(key: string): Promise<boolean> {
    const { agent, isKept } = this.#options
    const id = this.#id(key)
    const lasting = isKept ? {} : { ttlMs: TTL_MS }
    try {
      const options = { id, internal: true, ...lasting, ...(agent === undefined ? {} : { agent }) }
      return (await this.#holdfast.resolve(options)).isNew
    } catch (error) {
      if (isClosed(error) || isElsewhere(error)) return false
      throw error
    }
  }

  async #isThere(key: string): Promise<boolean> {
    const { row } = await this.#holdfast.authority.store.read(this.#id(key), 0, 0)
    return row !== null && row.seq > 1
  }

  /** The turn of a session that is closed by now, if it was about the same. */
  async #onlyTurn({ input, options }: TargetedTurn): Promise<string> {
    const { idempotencyKey: key } = options
    const { events } = await this.#holdfast.session(this.#id(key)).read(1, 1)
    const first = events.map(({ body }) => JSON.parse(body) as SessionEvent)[0]
    if (first?.type !== 'turn.started' && first?.type !== 'turn.queued') {
      throw new HoldfastError('session_closed', 'the request was given up before it was begun')
    }
    const digest = this.#holdfast.authority.digest(JSON.stringify(input))
    if (first.keys?.some((known) => known.key === key && known.digest === digest)) return first.turn
    throw new HoldfastError(
      'idempotency_mismatch',
      `Idempotency-Key ${JSON.stringify(key)} was used before with another body`,
    )
  }
}

function isClosed(error: unknown): boolean {
  return error instanceof HoldfastError && error.code === 'session_closed'
}

function isElsewhere(error: unknown): boolean {
  return error instanceof HoldfastError && error.code === 'not_owner'
}

function closeAfter({ authority }: Holdfast, { session, turn }: AdmittedTurn): void {
  // If it cannot be closed now, its time to live ends it.
  session
    .finished(turn)
    .then(() => authority.close(session.id, 'turn_over', null))
    .catch(() => undefined)
}
