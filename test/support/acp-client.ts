/** A stock client of the Agent Client Protocol, which keeps all that it is told and asked. */
import {
  client,
  type AnyMessage,
  type ClientConnection,
  type Stream,
} from '@agentclientprotocol/sdk'
import { createHttpStream } from '@agentclientprotocol/sdk/experimental/http-client'
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

export const TRANSPORTS = ['websocket', 'http'] as const

export type StockOptions = {
  readonly transport?: (typeof TRANSPORTS)[number]
  /** How requests are sent over HTTP. */
  readonly fetch?: typeof fetch
  readonly token?: string
  /** What comes after `/acp`. */
  readonly query?: string
  readonly initialize?: object
  /** What it answers of an agent's requests, by their methods. */
  readonly answers?: ClientAnswers
}

export type ClientAnswers = Readonly<Record<string, (params: any) => unknown>>

export class StockClient {
  /** Of clients that do not say. */
  static transport: (typeof TRANSPORTS)[number] = 'websocket'
  readonly updates: Update[] = []
  readonly asked: Asked[] = []
  /** Cuts its connection, as if its process had been killed. */
  readonly kill: () => void
  /** Ends the stream of a session, over HTTP, as a proxy in between may do. */
  cutStream: (session: string) => void = () => undefined
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
    const {
      token,
      query = '',
      transport = StockClient.transport,
      initialize = {},
      answers,
    } = options
    const headers: Record<string, string> = {}
    if (token !== undefined) headers['authorization'] = `Bearer ${token}`
    if (transport === 'http') {
      const requests = new KillableRequests(options.fetch)
      const stream = createHttpStream(`${url}/acp${query}`, { headers, fetch: requests.fetch })
      const stock = new StockClient(stream, requests.kill, answers)
      stock.cutStream = requests.cutStream
      await stock.initialize(initialize)
      return stock
    }
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

/** The requests of one client, which end all at once if its process is killed. */
class KillableRequests {
  readonly #process = new AbortController()
  /** Each ends the stream of a session. */
  readonly #ends = new Map<string, () => void>()
  readonly #send: typeof fetch

  constructor(send: typeof fetch = fetch) {
    this.#send = send
  }

  readonly kill = (): void => this.#process.abort()

  readonly cutStream = (session: string): void => this.#ends.get(session)?.()

  readonly fetch: typeof fetch = async (input, init = {}) => {
    const session = new Headers(init.headers).get('acp-session-id')
    const own = init.signal ? [init.signal] : []
    const signal = AbortSignal.any([this.#process.signal, ...own])
    const response = await this.#send(input, { ...init, signal })
    if (init.method !== 'GET' || session === null || response.body === null) return response
    const body = new TransformStream<Uint8Array<ArrayBuffer>>({
      start: (controller) => void this.#ends.set(session, () => controller.terminate()),
    })
    return new Response(response.body.pipeThrough(body), response)
  }
}

/** The choice of an option. */
export const selected = (optionId: string) => ({ outcome: { outcome: 'selected', optionId } })

export type { AnyMessage }
