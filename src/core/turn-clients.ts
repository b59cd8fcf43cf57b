/**
 * The clients whose requests the running turns are, as far as they answer requests of the agent: an
 * editor reads its files for it. Only the client of the running turn is asked, and only while its
 * turn runs. Nothing of this is recorded: it ends with the client's connection.
 */
import { HoldfastError } from './errors.ts'
import { isSamePrincipal, type Principal, type Turn } from './state.ts'

/** A client, while a request of its own waits or runs. */
export type TurnClient = {
  /** The methods that it answers. */
  readonly offers: ReadonlySet<string>
  /** Settles when the client has answered, when it is lost, and when the signal is aborted. */
  request(method: string, params: object, signal: AbortSignal): Promise<ClientAnswer>
}

/** What a client has answered: its own refusals too. */
export type ClientAnswer =
  | { readonly result: unknown }
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } }

/** What a client gives its requests, so that their turns are known by them. */
export type RequestName = {
  readonly session: string
  /** The idempotency key of the request. */
  readonly key: string
  readonly by: Principal
}

type Entry = { readonly by: Principal; readonly client: TurnClient; waiting: number }

/** Requests of one turn that one client has not answered. */
const REQUESTS_MAX = 64
const NO_OFFERS: ReadonlySet<string> = new Set()

export class TurnClients {
  /** By session and key. */
  readonly #entries = new Map<string, Entry>()

  /** The client answers for the turn of this request from now on, until the result is called. */
  add({ session, key, by }: RequestName, client: TurnClient): () => void {
    const name = nameOf(session, key)
    const entry: Entry = { by, client, waiting: 0 }
    this.#entries.set(name, entry)
    return () => {
      // A client that has come back may have taken its own place.
      if (this.#entries.get(name) === entry) this.#entries.delete(name)
    }
  }

  offersOf(session: string, turn: Turn): ReadonlySet<string> {
    return this.#find(session, turn)?.client.offers ?? NO_OFFERS
  }

  /** Asks the client of a turn that runs. */
  async request(
    { session, turn, signal }: { session: string; turn: Turn; signal: AbortSignal },
    method: string,
    params: object,
  ): Promise<ClientAnswer> {
    const entry = this.#find(session, turn)
    if (entry?.client.offers.has(method) !== true) {
      const message = `the client of this turn offers no ${method}`
      throw new HoldfastError('capability_missing', message, { capability: method })
    }
    if (entry.waiting >= REQUESTS_MAX) {
      throw new HoldfastError('too_many', 'too many requests wait for the client of this turn')
    }
    entry.waiting += 1
    try {
      return await entry.client.request(method, params, signal)
    } finally {
      entry.waiting -= 1
    }
  }

  /** Of the first of its requests whose client is there, and is the principal whose turn it is. */
  #find(session: string, { keys, by }: Turn): Entry | null {
    for (const { key } of keys) {
      const entry = this.#entries.get(nameOf(session, key))
      // A key that another principal has used first is not taken for the client's own.
      if (entry !== undefined && isSamePrincipal(entry.by, by)) return entry
    }
    return null
  }
}

/** No id of a session has a line break in it. */
function nameOf(session: string, key: string): string {
  return `${session}\n${key}`
}
