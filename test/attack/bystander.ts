/** Good clients, which must be served all the while: each does the same thing again and again. */
import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { inspect } from 'node:util'
import { WireClient } from '../support/wire-client.ts'
import type { Target } from './target.ts'

/** What is too long for a client that did nothing wrong. */
const PATIENCE_MS = 30_000
/** Between two rounds of one client. */
const PAUSE_MS = 100

export type Served = {
  readonly rounds: number
  readonly slowestMs: number
  readonly problems: readonly string[]
}

/** Two clients: one by HTTP, with a new connection for each turn, and one by a socket. */
export class Bystanders {
  readonly #target: Target
  readonly #problems: string[] = []
  readonly #working: Promise<void>[]
  #rounds = 0
  #slowestMs = 0
  #isOver = false

  private constructor(target: Target, client: WireClient) {
    this.#target = target
    this.#working = [this.#work('HTTP', () => this.#turn()), this.#follow(client)]
  }

  /** They are there before an attack begins. */
  static async start(target: Target): Promise<Bystanders> {
    const client = new WireClient(target.url)
    const { talk } = target.tokens
    const options = { agent: 'echo' }
    client.send({ type: 'hello', v: 1, key: 'bystander-socket', options, auth: { token: talk } })
    await client.frame('welcome')
    return new Bystanders(target, client)
  }

  /** How often they were served until now. */
  get rounds(): number {
    return this.#rounds
  }

  /** Lets each end its round, and tells how they were served. */
  async end(): Promise<Served> {
    this.#isOver = true
    await Promise.all(this.#working)
    return {
      rounds: this.#rounds,
      slowestMs: Math.round(this.#slowestMs),
      problems: this.#problems,
    }
  }

  async #turn(): Promise<void> {
    const token = this.#target.tokens.talk
    const body = { agent: 'echo', input: 'good day' }
    const url = `${this.#target.url}/v1/keys/bystander/turns`
    // In a burst of connections its own may be closed before its request was read.
    const answer = await post(url, token, body).catch(() => post(url, token, body))
    if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`)
  }

  async #follow(client: WireClient): Promise<void> {
    let round = 0
    await this.#work('socket', async () => {
      const id = `r${(round += 1)}`
      client.send({ type: 'turn', id, input: 'good day' })
      const { turn } = await client.reply(id)
      await client.frame((frame) => frame.type === 'turn.done' && frame['turn'] === turn)
      // What was heard is not needed any more.
      client.frames.length = 0
    })
    client.socket.terminate()
  }

  async #work(name: string, round: () => Promise<void>): Promise<void> {
    while (!this.#isOver && this.#problems.length < 10) {
      const startedAt = performance.now()
      await within(PATIENCE_MS, round()).catch((thrown: unknown) => {
        this.#problems.push(`${name}: ${inspect(thrown)}`)
      })
      this.#slowestMs = Math.max(this.#slowestMs, performance.now() - startedAt)
      this.#rounds += 1
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
  }
}

/** By a connection of its own. With `fetch` a client whose connection was closed at once waited 30 s. */
async function post(
  url: string,
  token: string,
  body: object,
): Promise<{ readonly status: number | undefined; readonly text: string }> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const sent = request(url, { method: 'POST', agent: false, headers }).end(JSON.stringify(body))
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  return { status: response.statusCode, text: await text(response) }
}

async function within<Value>(ms: number, work: Promise<Value>): Promise<Value> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not served within ${ms} ms`)), ms)
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}
