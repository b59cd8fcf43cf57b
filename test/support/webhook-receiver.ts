/** A receiver of webhooks on loopback, which checks signatures with the stock library. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'
import { Webhook } from 'standardwebhooks'
import { until } from './gate.ts'

/** 24 bytes. */
export const SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`

export type Received = {
  readonly id: string
  readonly type: string
  readonly data: any
  readonly headers: IncomingMessage['headers']
  readonly text: string
  /** Whether it was answered with 2xx. */
  readonly isConfirmed: boolean
}

/** What it answers: a status, with headers if need be; or nothing at all. */
export type Reply =
  | number
  | { readonly status: number; readonly headers: Record<string, string> }
  | ((request: IncomingMessage, response: ServerResponse) => void)

/** What it answers to an event, after so many that it has received. */
export type Replier = (event: { id: string; type: string }, count: number) => Reply

export class WebhookReceiver {
  readonly received: Received[] = []
  readonly #server: Server
  readonly #reply: Replier

  private constructor(reply: Replier) {
    this.#reply = reply
    this.#server = createServer((request, response) => void this.#take(request, response))
  }

  static async start(reply: Replier = () => 204, port = 0): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver(reply)
    await once(receiver.#server.listen(port, '127.0.0.1'), 'listening')
    return receiver
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/hook`
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
    const text = Buffer.concat(chunks).toString()
    const headers = request.headers
    // Throws if a signature is wrong, or too old.
    const { type, data } = new Webhook(SECRET).verify(
      text,
      headers as Record<string, string>,
    ) as any
    const id = String(headers['webhook-id'])
    const reply = this.#reply({ id, type }, this.received.length)
    const status = typeof reply === 'number' ? reply : typeof reply === 'object' ? reply.status : 0
    const isConfirmed = status >= 200 && status < 300
    this.received.push({ id, type, data, headers, text, isConfirmed })
    if (typeof reply === 'function') return reply(request, response)
    if (typeof reply === 'object') response.writeHead(status, reply.headers)
    else response.writeHead(status)
    response.end()
  }

  /** Those that were confirmed, each once, in the order in which they were first confirmed. */
  get confirmed(): readonly Received[] {
    const byId = new Map<string, Received>()
    for (const one of this.received) {
      if (one.isConfirmed && !byId.has(one.id)) byId.set(one.id, one)
    }
    return [...byId.values()]
  }

  types(): readonly string[] {
    return this.confirmed.map(({ type }) => type)
  }

  async waitFor(count: number): Promise<void> {
    await until(() => this.confirmed.length >= count)
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

/** Positions of each session in the order of their arrival, repetitions left out. */
export function seqsOf(received: readonly Received[]): ReadonlyMap<string, readonly number[]> {
  const seqs = new Map<string, number[]>()
  for (const { data } of received) {
    if (data.session === undefined) continue
    const list = seqs.get(data.session.id) ?? []
    seqs.set(data.session.id, list)
    if (list.at(-1) !== data.seq) list.push(data.seq)
  }
  return seqs
}
