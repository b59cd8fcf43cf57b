/**
 * Clients that stay attached through everything, each over whichever node it happens to reach, and
 * come back by themselves: with the package's own client, or with server-sent events. The former
 * also talk, and are asked for permissions: they answer once, twice, late, beside their socket, or
 * not at all.
 */
import { setTimeout } from 'node:timers/promises'
import { connect, type Ask, type ClientSession } from 'holdfast/client'
import { WebSocket } from 'ws'
import type { Random } from '../simulation/random.ts'
import { questionOf, type Sent } from './load.ts'

/** All that one client was told, in the order in which it was told. */
export type Seen = {
  readonly client: string
  readonly session: string
  readonly events: readonly { readonly seq: number; readonly type: string }[]
  readonly problems: readonly string[]
}

/** An answer that somebody gave. */
export type Answer = {
  readonly session: string
  readonly ask: string
  readonly answer: string
  /** Null: whoever gave it never learned what became of it. */
  readonly isTaken: boolean | null
}

/** What stays the same for all clients of one chaos. */
export type Company = {
  readonly urls: readonly string[]
  readonly answers: Answer[]
  readonly sent: Sent[]
}

export interface Client {
  readonly seen: Seen
  /** Waits until it was told of this position; whether that was so in time. */
  reach(seq: number, ms: number): Promise<boolean>
  /** Says nothing more; resolves when all that it said is answered. */
  hush(): Promise<void>
  leave(): void
}

type Told = { readonly seq: number; readonly type: string }

/** How long an answer may be on its way: a frozen node answers nobody. */
const ANSWER_MS = 5_000
const LOOK_MS = 20

async function reached(events: readonly Told[], seq: number, ms: number): Promise<boolean> {
  for (const until = Date.now() + ms; Date.now() < until;) {
    if ((events.at(-1)?.seq ?? 0) >= seq) return true
    await setTimeout(LOOK_MS)
  }
  return false
}

/** `holdfast/client`, as an application would use it. */
export class AttachedClient implements Client {
  readonly #name: string
  readonly #company: Company
  readonly #random: Random
  readonly #session: ClientSession
  readonly #events: Told[] = []
  readonly #problems: string[] = []
  readonly #asked = new Set<string>()
  readonly #talking: Promise<void>
  readonly #voice = { isOn: true }
  #given = 0

  constructor(name: string, key: string, company: Company, random: Random) {
    this.#name = name
    this.#company = company
    this.#random = random
    /** As a load balancer would: each connection goes to some node. */
    class Balanced extends WebSocket {
      constructor(url: string) {
        const { host } = new URL(random.pick(company.urls))
        super(Object.assign(new URL(url), { host }).href)
      }
    }
    const [url = ''] = company.urls
    const client = connect({ url, webSocket: Balanced, storage: null })
    this.#session = client.session({ key, answers: ['permission'], presence: true })
    // How it ended, if it did, is told by its state.
    this.#session.ready.catch(() => undefined)
    this.#session.on('event', ({ seq, type }) => this.#events.push({ seq, type }))
    this.#session.on('ask', (ask) => this.#asks(ask))
    this.#session.on('state', (state) => {
      if (state.name === 'ended') this.#problems.push(`ended: ${state.code}, ${state.reason}`)
    })
    this.#talking = this.#talk(key)
  }

  async #talk(key: string): Promise<void> {
    for (let n = 0; this.#voice.isOn; n += 1) {
      const text = `${this.#name}-${n} ${this.#random.between(1, 300)}${questionOf(this.#random)}`
      const answer = await this.#session.turn(text).then(
        ({ id, state, reply }) => ({
          session: this.seen.session,
          turn: id,
          reply: state === 'done' ? (reply?.text ?? '') : `(${state})`,
        }),
        () => null,
      )
      this.#company.sent.push({ key, text, answer })
      await setTimeout(this.#random.between(200, 1_500))
    }
  }

  hush(): Promise<void> {
    this.#voice.isOn = false
    return this.#talking
  }

  get seen(): Seen {
    const session = this.#session.info?.id ?? ''
    const [events, problems] = [[...this.#events], [...this.#problems]]
    return { client: this.#name, session, events, problems }
  }

  reach(seq: number, ms: number): Promise<boolean> {
    return reached(this.#events, seq, ms)
  }

  leave(): void {
    this.#session.dispose()
  }

  #asks({ id }: Ask): void {
    if (this.#asked.has(id)) this.#problems.push(`was asked ${id} twice`)
    this.#asked.add(id)
    const how = this.#random.weighted({ once: 4, beside: 2, twice: 3, late: 2, never: 3 })
    if (how === 'never') return
    if (how === 'late')
      return void setTimeout(this.#random.between(300, 1_500), id).then(this.#over)
    if (how !== 'beside') void this.#over(id)
    if (how !== 'once') void this.#beside(id)
  }

  #next(): string {
    this.#given += 1
    return `${this.#name}#${this.#given}`
  }

  /** Over its own socket. */
  readonly #over = async (ask: string): Promise<void> => {
    const answer = this.#next()
    const isTaken = await this.#session.answer(ask, answer).then(
      () => true,
      (error: { code?: string }) => (error.code === 'ask_settled' ? false : null),
    )
    this.#note(ask, answer, isTaken)
  }

  /** Over HTTP, through any node. */
  async #beside(ask: string): Promise<void> {
    const answer = this.#next()
    const url = `${this.#random.pick(this.#company.urls)}/v1/sessions/${this.seen.session}`
    const isTaken = await fetch(`${url}/asks/${ask}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ answer }),
      signal: AbortSignal.timeout(ANSWER_MS),
    }).then(
      ({ status }) => (status === 200 ? true : status === 409 ? false : null),
      () => null,
    )
    this.#note(ask, answer, isTaken)
  }

  #note(ask: string, answer: string, isTaken: boolean | null): void {
    this.#company.answers.push({ session: this.seen.session, ask, answer, isTaken })
  }
}

/** Server-sent events: begun again at any node with `Last-Event-ID`, as a browser would. */
export class StreamingClient implements Client {
  readonly #name: string
  readonly #company: Company
  readonly #random: Random
  readonly #events: Told[] = []
  readonly #leaving = new AbortController()
  #session = ''
  #lastEventId = ''

  constructor(name: string, key: string, company: Company, random: Random) {
    this.#name = name
    this.#company = company
    this.#random = random
    void this.#follow(key)
  }

  get seen(): Seen {
    const events = [...this.#events]
    return { client: this.#name, session: this.#session, events, problems: [] }
  }

  reach(seq: number, ms: number): Promise<boolean> {
    return reached(this.#events, seq, ms)
  }

  async hush(): Promise<void> {}

  leave(): void {
    this.#leaving.abort()
  }

  async #follow(key: string): Promise<void> {
    while (!this.#leaving.signal.aborted) {
      try {
        if (this.#session === '') await this.#resolve(key)
        await this.#stream()
      } catch {
        // Whatever it was: once more, elsewhere.
      }
      await setTimeout(this.#random.between(10, 200))
    }
  }

  async #resolve(key: string): Promise<void> {
    const response = await fetch(`${this.#random.pick(this.#company.urls)}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key }),
      signal: AbortSignal.any([this.#leaving.signal, AbortSignal.timeout(ANSWER_MS)]),
    })
    if (response.ok) this.#session = ((await response.json()) as { id: string }).id
  }

  async #stream(): Promise<void> {
    const url = `${this.#random.pick(this.#company.urls)}/v1/sessions/${this.#session}/events`
    const headers = { accept: 'text/event-stream', 'last-event-id': this.#lastEventId }
    const response = await fetch(url, { headers, signal: this.#leaving.signal })
    if (!response.ok || response.body === null) return
    let text = ''
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const frames = (text + chunk).split('\n\n')
      text = frames.pop() ?? ''
      for (const frame of frames) this.#take(frame)
    }
  }

  #take(frame: string): void {
    const fields = new Map(frame.split('\n').map((line) => splitOnce(line, ': ')))
    this.#lastEventId = fields.get('id') ?? this.#lastEventId
    const data = JSON.parse(fields.get('data') ?? '{}') as Partial<Told>
    if (data.seq !== undefined) this.#events.push({ seq: data.seq, type: data.type ?? '' })
  }
}

function splitOnce(line: string, separator: string): [string, string] {
  const at = line.indexOf(separator)
  return at === -1 ? [line, ''] : [line.slice(0, at), line.slice(at + separator.length)]
}
