/**
 * Properties of connections: whatever clients say and whenever they go, each gets at most one welcome,
 * hears nothing after the end, and leaves nothing behind.
 */
import fc from 'fast-check'
import { Connection } from '../../src/doors/connect/connection.ts'
import { connectService } from '../../src/doors/connect/entry.ts'
import { Hub } from '../../src/doors/connect/hub.ts'
import type { Socket } from '../../src/doors/connect/socket.ts'
import { openHoldfast } from '../../src/open.ts'
import { until } from '../support/gate.ts'
import { endings, frames, messages } from './client-frames.ts'

export type Step =
  | { readonly type: 'open'; readonly key: number; readonly hello: object }
  /** Comes back with what the client's last welcome gave it. */
  | { readonly type: 'resume'; readonly client: number; readonly take: boolean }
  | { readonly type: 'say'; readonly client: number; readonly message: string }
  | { readonly type: 'hangUp'; readonly client: number }
  /** Its network takes nothing any more. */
  | { readonly type: 'clog'; readonly client: number }
  | { readonly type: 'turn'; readonly key: number }
  | { readonly type: 'closeSession'; readonly key: number }
  | { readonly type: 'wait'; readonly ticks: number }

const KEYS = 2
const CLIENTS = 4
const client = fc.nat(CLIENTS - 1)
const key = fc.nat(KEYS - 1)

const hello = fc.record(
  {
    role: fc.constantFrom('driver', 'watcher'),
    answers: fc.constant(['permission']),
    take: fc.boolean(),
    presence: fc.boolean(),
    after: fc.record({ seq: fc.nat(4), delta: fc.nat(2) }),
    options: fc.record(
      {
        agent: fc.constantFrom('echo', 'ask', 'slow'),
        reconnect: fc.constantFrom('none', 'early', 'resume', 'reopen'),
        exclusive: fc.boolean(),
        graceMs: fc.constantFrom(0, 5, 60_000),
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: [] },
)

const said = fc.oneof(
  { weight: 6, arbitrary: frames.map((frame) => JSON.stringify(frame)) },
  { weight: 1, arbitrary: endings.map((frame) => JSON.stringify(frame)) },
  { weight: 1, arbitrary: messages },
)

export const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.record({ type: fc.constant('open' as const), key, hello }) },
    {
      weight: 3,
      arbitrary: fc.record({ type: fc.constant('resume' as const), client, take: fc.boolean() }),
    },
    {
      weight: 8,
      arbitrary: fc.record({ type: fc.constant('say' as const), client, message: said }),
    },
    { weight: 2, arbitrary: fc.record({ type: fc.constant('hangUp' as const), client }) },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('clog' as const), client }) },
    { weight: 2, arbitrary: fc.record({ type: fc.constant('turn' as const), key }) },
    { weight: 1, arbitrary: fc.record({ type: fc.constant('closeSession' as const), key }) },
    { weight: 6, arbitrary: fc.record({ type: fc.constant('wait' as const), ticks: fc.nat(3) }) },
  ),
  { maxLength: 40, size: 'max' },
)

/** A wire that keeps what was sent, and notes what should not have been. */
class FakeSocket implements Socket {
  readonly address = '127.0.0.1'
  readonly sent: string[] = []
  readonly problems: string[] = []
  bufferedBytes = 0
  isOver = false
  #clogged: (() => void)[] | null = null

  send(data: string | Uint8Array, sent?: () => void): void {
    if (this.isOver) this.problems.push(`sent after the end: ${String(data)}`)
    this.sent.push(typeof data === 'string' ? data : new TextDecoder().decode(data))
    if (this.#clogged === null) setImmediate(() => sent?.())
    else this.#clogged.push(() => sent?.())
  }

  close(code: number): void {
    if (this.isOver) this.problems.push('closed twice')
    if (code < 1000 || code > 4999) this.problems.push(`closed with ${code}`)
    this.end()
  }

  cut(): void {
    this.end()
  }

  clog(): void {
    this.#clogged ??= []
    this.bufferedBytes = Number.POSITIVE_INFINITY
  }

  end(): void {
    this.isOver = true
    for (const sent of this.#clogged?.splice(0) ?? []) sent()
  }

  get frames(): any[] {
    return this.sent.flatMap((text) => JSON.parse(text) as unknown)
  }
}

type Client = { readonly socket: FakeSocket; readonly connection: Connection }

/** Plays the steps and returns what went wrong. */
export async function play(script: readonly Step[]): Promise<string[]> {
  const world = await World.open()
  try {
    for (const step of script) await world.take(step)
    return await world.end()
  } finally {
    await world.close()
  }
}

class World {
  readonly #holdfast: Awaited<ReturnType<typeof openHoldfast>>
  readonly #hub: Hub
  readonly #clients: Client[] = []
  readonly #problems: string[] = []
  readonly #unhandled = (reason: unknown): void => void this.#problems.push(String(reason))

  constructor(holdfast: Awaited<ReturnType<typeof openHoldfast>>) {
    this.#holdfast = holdfast
    const limits = { slowMs: 3, probeMs: 2, watchMs: 5, helloMs: 20, requestsMax: 4 }
    this.#hub = new Hub({ holdfast, limits })
    process.on('unhandledRejection', this.#unhandled)
  }

  static async open(): Promise<World> {
    return new World(await openHoldfast({ store: 'memory:', limits: { waitMs: 20 } }))
  }

  async take(step: Step): Promise<void> {
    switch (step.type) {
      case 'open':
        return this.#open({ key: `key ${step.key}`, ...step.hello })
      case 'resume':
        return this.#resume(this.#client(step.client), step.take)
      case 'say': {
        const client = this.#client(step.client)
        if (client !== undefined && !client.socket.isOver) client.connection.receive(step.message)
        return
      }
      case 'hangUp':
        return this.#hangUp(this.#client(step.client))
      case 'clog':
        return this.#client(step.client)?.socket.clog()
      case 'turn':
        // Refused if that session was closed meanwhile, or has no room.
        return void this.#holdfast
          .turn({ key: `key ${step.key}` }, { text: 'a b c', ms: 1 }, { waitMs: 5 })
          .then(undefined, () => undefined)
      case 'closeSession': {
        const session = await this.#holdfast.resolve({ key: `key ${step.key}` })
        // It may have been made for a hello or a turn that is being refused: then it is removed.
        await session.close().catch((error: { readonly code?: string }) => {
          if (error.code !== 'session_erased') throw error
        })
        return
      }
      case 'wait':
        for (let tick = 0; tick < step.ticks; tick += 1) {
          await new Promise((resolve) => setImmediate(resolve))
        }
    }
  }

  /** One of the last few clients. */
  #client(index: number): Client | undefined {
    return this.#clients.at(-1 - index)
  }

  #open(hello: object): void {
    const socket = new FakeSocket()
    const connection = new Connection(this.#hub, socket, connectService)
    this.#clients.push({ socket, connection })
    connection.receive(JSON.stringify({ type: 'hello', v: 1, ...hello }))
  }

  #resume(client: Client | undefined, take: boolean): void {
    const welcome = client?.socket.frames.find(({ type }) => type === 'welcome')
    if (welcome === undefined) return
    const { attachment, resume: token } = welcome
    const resume = { attachment, token: String(token) }
    this.#open({ session: welcome.session.id, auth: { resume }, take })
  }

  #hangUp(client: Client | undefined): void {
    if (client === undefined || client.socket.isOver) return
    client.socket.end()
    client.connection.closed()
  }

  async end(): Promise<string[]> {
    for (const client of this.#clients) this.#hangUp(client)
    await until(() => this.#hub.count === 0)
    return [...this.#problems, ...this.#clients.flatMap(({ socket }) => judge(socket))]
  }

  async close(): Promise<void> {
    this.#hub.close()
    await this.#holdfast.close()
    process.off('unhandledRejection', this.#unhandled)
  }
}

/** What a client heard, judged: one welcome or one refusal first, events once and in order. */
function judge(socket: FakeSocket): string[] {
  const { frames } = socket
  const problems = [...socket.problems]
  const count = (type: string): number => frames.filter((frame) => frame.type === type).length
  if (count('welcome') > 1) problems.push('welcomed twice')
  if (count('refuse') > 1) problems.push('refused twice')
  if (count('welcome') + count('refuse') > 1) problems.push('welcomed and refused')
  const first = frames.findIndex(({ type }) => type === 'welcome')
  const early = frames.findIndex(({ seq, n, type }) => seq ?? n ?? type === 'reply')
  if (early >= 0 && (first < 0 || early < first)) problems.push('told before it was welcome')
  let last = frames[first]?.after.seq ?? 0
  for (const { seq } of frames) {
    if (typeof seq !== 'number') continue
    if (seq <= last) problems.push(`event ${seq} after ${last}`)
    last = seq
  }
  const ids = frames.filter(({ type }) => type === 'reply').map(({ id }) => String(id))
  if (ids.some((id) => id === '')) problems.push('a reply without an id')
  return problems
}
