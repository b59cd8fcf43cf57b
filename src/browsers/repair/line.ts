/** One connection to a backend that is to be repaired: replies find their way by their id alone. */
import type { BrowserConnection, ConnectionEvents } from '../connection.ts'

export type Fields = Readonly<Record<string, unknown>>
export type Answer = { readonly result?: Fields; readonly error?: Fields }
export type LineEvent = {
  readonly method: string
  readonly params: Fields
  readonly session: string
}

type Message = Answer & {
  readonly id?: number
  readonly method?: string
  readonly params?: Fields
  readonly sessionId?: string
}

export type OpenConnection = (events: ConnectionEvents) => Promise<BrowserConnection>

export class Line {
  readonly #pending = new Map<number, (answer: Answer) => void>()
  #connection: BrowserConnection | null = null
  #lastId = 0
  onEvent: (event: LineEvent) => void = () => undefined
  onClosed: (reason: string) => void = () => undefined

  static async open(connect: OpenConnection): Promise<Line> {
    const line = new Line()
    line.#connection = await connect({
      message: (message) => line.#receive(JSON.parse(message.toString()) as Message),
      tooLarge: () => undefined,
      closed: (reason) => line.#closed(reason),
    })
    return line
  }

  /** The answer comes in order with the events. */
  ask(method: string, params: Fields, read: (answer: Answer) => void, session = ''): void {
    this.#lastId += 1
    this.#pending.set(this.#lastId, read)
    const sessionId = session === '' ? {} : { sessionId: session }
    this.#connection?.send(JSON.stringify({ id: this.#lastId, method, params, ...sessionId }))
  }

  async command(method: string, params: Fields = {}): Promise<Fields> {
    const { result, error } = await new Promise<Answer>((read) => this.ask(method, params, read))
    if (error === undefined) return result ?? {}
    throw new Error(String(error['message']))
  }

  close(): void {
    void this.#connection?.close()
  }

  #receive({ id, method, params = {}, result, error, sessionId = '' }: Message): void {
    // The session that it is stamped with may be another's: only the id is to be believed.
    const read = id === undefined ? undefined : this.#pending.get(id)
    if (id !== undefined) this.#pending.delete(id)
    if (read !== undefined) return read(error === undefined ? { result: result ?? {} } : { error })
    if (method !== undefined) this.onEvent({ method, params, session: sessionId })
  }

  #closed(reason: string): void {
    const pending = [...this.#pending.values()]
    this.#pending.clear()
    for (const read of pending) read({ error: { code: -32_000, message: reason } })
    this.onClosed(reason)
  }
}

/** The same value with every text that is exactly `from` replaced. */
export function replaced<Value>(value: Value, from: string, to: string): Value {
  if (from === to) return value
  if (value === from) return to as Value
  if (Array.isArray(value)) return value.map((item) => replaced(item as unknown, from, to)) as Value
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([name, item]) => [name, replaced(item, from, to)])
  return Object.fromEntries(entries) as Value
}
