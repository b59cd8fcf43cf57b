/** One connection to a backend that is to be repaired: replies are matched by their id only. */
import type {
  BrowserConnection,
  CdpEvent,
  CdpReply,
  ConnectionEvents,
  Params,
} from './connection.ts'

export type OpenConnection = (events: ConnectionEvents) => Promise<BrowserConnection>

type BackendMessage = CdpReply &
  Partial<CdpEvent> & { readonly id?: number; readonly sessionId?: string }

export class BackendLink {
  readonly #unanswered = new Map<number, (reply: CdpReply) => void>()
  #connection: BrowserConnection | null = null
  #lastId = 0
  onEvent: (event: CdpEvent, session: string) => void = () => undefined
  onClosed: (reason: string) => void = () => undefined

  static async open(connect: OpenConnection): Promise<BackendLink> {
    const link = new BackendLink()
    link.#connection = await connect({
      message: (message) => link.#receive(JSON.parse(message.toString()) as BackendMessage),
      tooLarge: () => undefined,
      closed: (reason) => link.#closed(reason),
    })
    return link
  }

  /** The reply is read in order with the events. */
  ask(method: string, params: Params, read: (reply: CdpReply) => void, session = ''): void {
    this.#lastId += 1
    this.#unanswered.set(this.#lastId, read)
    const sessionId = session === '' ? {} : { sessionId: session }
    this.#connection?.send(JSON.stringify({ id: this.#lastId, method, params, ...sessionId }))
  }

  async command(method: string, params: Params = {}): Promise<Params> {
    const { result, error } = await new Promise<CdpReply>((read) => this.ask(method, params, read))
    if (error === undefined) return result ?? {}
    throw new Error(error.message)
  }

  close(): void {
    void this.#connection?.close()
  }

  #receive({ id, method, params = {}, result, error, sessionId = '' }: BackendMessage): void {
    // A reply may carry the id of another session.
    const read = id === undefined ? undefined : this.#unanswered.get(id)
    if (id !== undefined) this.#unanswered.delete(id)
    if (read !== undefined) return read(error === undefined ? { result: result ?? {} } : { error })
    if (method !== undefined) this.onEvent({ method, params }, sessionId)
  }

  #closed(reason: string): void {
    const unanswered = [...this.#unanswered.values()]
    this.#unanswered.clear()
    for (const read of unanswered) read({ error: { code: -32_000, message: reason } })
    this.onClosed(reason)
  }
}
