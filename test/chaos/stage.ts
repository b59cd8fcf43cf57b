/** Where a plot is played: what its callers do, what they are told, and what they wait for. */
import { request, type Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Look, Sent } from './load.ts'
import { ofKind } from './witness.ts'
import type { Seat, World } from './world.ts'

export const KEY = 'plot'
/** How long something that must happen may take. */
const PATIENCE_MS = 20_000
/** How long a node may take to show a session: one that does not has shown nothing. */
const SHOW_MS = 3_000

/** Two nodes, one session, and everything that anybody was told. */
export class Stage {
  readonly world: World
  readonly sent: Sent[] = []
  readonly looks: Look[] = []
  session = ''
  readonly #agent: string

  constructor(world: World, agent: string) {
    this.world = world
    this.#agent = agent
  }

  get one(): Seat {
    return this.world.seats[0]!
  }

  get other(): Seat {
    return this.world.seats[1]!
  }

  /** The first node owns the session from its first turn on. */
  async begin(): Promise<void> {
    const answer = await this.turn(this.one, 'first 1')
    if (answer === null) throw new Error('the first turn was not answered')
    this.session = answer.session
  }

  /** Asks for a turn, once; null if nobody can say what became of it. */
  async turn({ url }: Seat, text: string): Promise<Sent['answer']> {
    const body = { input: text, agent: this.#agent }
    const answer = await post(`${url}/v1/keys/${KEY}/turns`, body).then(
      ({ status, body }) => (status === 200 ? answerOf(body) : null),
      () => null,
    )
    this.sent.push({ key: KEY, text, answer })
    return answer
  }

  /** Leaves a turn in the queue. */
  async submit({ url }: Seat, text: string): Promise<void> {
    const headers = { prefer: 'respond-async' }
    const { status } = await post(`${url}/v1/keys/${KEY}/turns`, { input: text }, headers)
    if (status !== 202) throw new Error(`${text} was not queued: ${status}`)
    this.sent.push({ key: KEY, text, answer: null })
  }

  /** The session as the node shows it; null if it does not, or not soon. */
  show({ url }: Seat, agent?: Agent): Promise<number | null> {
    return ask(`${url}/v1/sessions/${this.session}`, agent).then(
      ({ status, body }) => (status === 200 ? (body.seq as number) : null),
      () => null,
    )
  }

  /** Notes what somebody was shown who knew better. */
  look(known: number | null, seq: number | null): void {
    if (known === null) throw new Error('the owner does not show its session')
    if (seq !== null) this.looks.push({ session: this.session, known, seq })
  }

  /** When the agent has begun with so many turns, in whichever node. */
  async begun(turns: number): Promise<void> {
    const runs = (): Set<string> =>
      new Set(ofKind(this.world.testimony(), 'tick').map(({ run }) => run))
    await until(() => runs().size >= turns)
  }

  /** When every node that lives answers for the session again. */
  async isWell(): Promise<void> {
    const alive = this.world.seats.filter(({ process }) => process.isRunning)
    for (const seat of alive) {
      await until(async () => (await this.show(seat)) !== null)
    }
  }

  /** When a node has claimed the session for the how manieth time. */
  async claimed(epoch: number): Promise<void> {
    await until(async () => {
      // A session that nobody asks for is nobody's: so it is asked for.
      await fetch(`${this.other.url}/v1/sessions/${this.session}`).catch(() => undefined)
      return (await this.world.epochOf(this.session)) >= epoch
    })
  }
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + PATIENCE_MS; !(await condition());) {
    if (Date.now() > end) throw new Error('it does not happen')
    await setTimeout(25)
  }
}

type Answered = { readonly status: number; readonly body: any }

function answerOf({ session, turn }: any): Sent['answer'] {
  const { id, state, reply } = turn
  return { session, turn: id, reply: state === 'done' ? reply.text : `(${state})` }
}

async function post(
  url: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<Answered> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE_MS),
  })
  return { status: response.status, body: await response.json() }
}

function ask(url: string, agent?: Agent): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, signal: AbortSignal.timeout(SHOW_MS) }, (answer) => {
      let text = ''
      answer.setEncoding('utf8')
      answer.on('data', (chunk) => (text += chunk))
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: JSON.parse(text) }))
    })
    asked.on('error', reject)
    asked.end()
  })
}
