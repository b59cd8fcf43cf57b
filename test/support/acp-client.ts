/** A stock client of the Agent Client Protocol, which keeps all that it is told and asked. */
import {
  client,
  type AnyMessage,
  type ClientConnection,
  type Stream,
} from '@agentclientprotocol/sdk'
import { createWebSocketStream } from '@agentclientprotocol/sdk/experimental/ws-client'
import { WebSocket } from 'ws'
import { until } from './gate.ts'

/** What the client was asked, how to answer it, and whether the request was cancelled. */
export type Asked = {
  readonly id: unknown
  readonly method: string
  readonly params: any
  readonly answer: (result: unknown) => void
  readonly isCancelled: () => boolean
}

export type Update = { readonly session: string; readonly at: string; readonly update: any }

export type StockOptions = {
  readonly token?: string
  /** What comes after `/acp`. */
  readonly query?: string
  readonly initialize?: object
  /** What it answers of an agent's requests, by their methods. */
  readonly answers?: ClientAnswers
}

export type ClientAnswers = Readonly<Record<string, (params: any) => unknown>>

export class StockClient {
  readonly updates: Update[] = []
  readonly asked: Asked[] = []
  /** Cuts its connection, as if its process had been killed. */
  readonly kill: () => void
  readonly #connection: ClientConnection

  constructor(stream: Stream, kill: () => void = () => undefined, answers: ClientAnswers = {}) {
    this.kill = kill
    const ask =
      (method: string) =>
      (context: any): any =>
        new Promise((resolve) => {
          const { params, signal, requestId: id } = context
          const isCancelled = (): boolean => signal?.aborted === true
          this.asked.push({ id, method, params, answer: resolve, isCancelled })
          signal?.addEventListener('abort', () =>
            resolve(
              method === 'elicitation/create'
                ? { action: 'cancel' }
                : { outcome: { outcome: 'cancelled' } },
            ),
          )
        })
    const app = client({ name: 'stock' })
      .onRequest('session/request_permission', ask('session/request_permission'))
      .onRequest('elicitation/create', ask('elicitation/create'))
      .onNotification('session/update', ({ params }: any) => {
        const { sessionId: session, update, _meta } = params
        this.updates.push({ session, update, at: _meta?.holdfast?.at })
      })
    for (const [method, answer] of Object.entries(answers)) {
      app.onRequest(method as 'fs/read_text_file', (({ params }: any) => answer(params)) as never)
    }
    this.#connection = app.connect(stream)
  }

  static async connect(url: string, options: StockOptions = {}): Promise<StockClient> {
    const { token, query = '', initialize = {}, answers } = options
    const headers: Record<string, string> = {}
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    const address = `${url.replace('http', 'ws')}/acp${query}`
    let socket: WebSocket | null = null
    class KilledSocket extends WebSocket {
      constructor(...args: ConstructorParameters<typeof WebSocket>) {
        super(...args)
        socket = this
      }
    }
    const stream = createWebSocketStream(address, { WebSocket: KilledSocket, headers })
    const stock = new StockClient(stream, () => socket?.terminate(), answers)
    await stock.initialize(initialize)
    return stock
  }

  initialize(more: object = {}): Promise<any> {
    return this.request('initialize', { protocolVersion: 1, clientCapabilities: {}, ...more })
  }

  request(method: string, params: object): Promise<any> {
    return this.#connection.agent.request(method, params)
  }

  notify(method: string, params: object): Promise<void> {
    return this.#connection.agent.notify(method, params)
  }

  /** The session, opened by its key. */
  async open(meta: object = {}): Promise<string> {
    const params = { cwd: '/', mcpServers: [], _meta: { holdfast: meta } }
    return (await this.request('session/new', params)).sessionId
  }

  prompt(sessionId: string, text: string, meta: object = {}): Promise<any> {
    const prompt = [{ type: 'text', text }]
    return this.request('session/prompt', { sessionId, prompt, _meta: { holdfast: meta } })
  }

  /** The text of the messages that it was told. */
  said(kind = 'agent_message_chunk', session?: string): string {
    return this.updates
      .filter((told) => session === undefined || told.session === session)
      .filter(({ update }) => update.sessionUpdate === kind)
      .map(({ update }) => update.content.text ?? '')
      .join('')
  }

  kinds(): readonly string[] {
    return this.updates.map(({ update }) => update.sessionUpdate as string)
  }

  async nextAsk(): Promise<Asked> {
    let next: Asked | undefined
    await until(() => {
      next = this.asked.shift()
      return next !== undefined
    })
    return next!
  }

  get closed(): Promise<void> {
    return this.#connection.closed
  }

  close(): void {
    this.#connection.close()
  }
}

/** The choice of an option. */
export const selected = (optionId: string) => ({ outcome: { outcome: 'selected', optionId } })

export type { AnyMessage }
