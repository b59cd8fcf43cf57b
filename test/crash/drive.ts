/**
 * Callers that do not care whether the server is up: each request has an idempotency key and is sent
 * again until it is answered. What was acknowledged is written down, to be looked for in the logs.
 */
export type Acknowledged = {
  readonly key: string
  readonly session: string
  readonly turn: string
  readonly nonce: string
  /** The turn's state in the answer: over, or (202) only admitted. */
  readonly state: string
  readonly reply: string | null
}

export type Plan = {
  readonly keys: number
  readonly callers: number
  readonly random: () => number
}

/** Between two tries of a caller whose connection broke. */
const RETRY_MS = 10
/** A request to a server that was killed may never be told so. */
const REQUEST_MS = 10_000

async function pause(): Promise<null> {
  await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  return null
}

export class Callers {
  readonly acknowledged: Acknowledged[] = []
  readonly #plan: Plan
  readonly #name: string
  #url: string | null = null
  #awake: (() => void)[] = []
  #answered: (() => void)[] = []
  #stopping = false
  #sent = 0

  constructor(plan: Plan, name: string) {
    this.#plan = plan
    this.#name = name
  }

  /** The server is here, or (null) gone. */
  serverAt(url: string | null): void {
    this.#url = url
    if (url === null) return
    for (const wake of this.#awake.splice(0)) wake()
  }

  /** Runs until `stop`; then every caller ends after the answer it waits for. */
  async run(): Promise<void> {
    await Promise.all(Array.from({ length: this.#plan.callers }, () => this.#call()))
  }

  stop(): void {
    this.#stopping = true
  }

  /** When so many turns are acknowledged. */
  async reached(acknowledged: number): Promise<void> {
    while (this.acknowledged.length < acknowledged) {
      await new Promise<void>((resolve) => this.#answered.push(resolve))
    }
  }

  /** Each key once, then any. */
  #nextKey(): string {
    const { keys, random } = this.#plan
    return `key-${this.#sent <= keys ? this.#sent - 1 : Math.floor(random() * keys)}`
  }

  async #call(): Promise<void> {
    while (!this.#stopping) {
      this.#sent += 1
      const nonce = `${this.#name}-${this.#sent}`
      const key = this.#nextKey()
      const async = this.#plan.random() < 0.3
      for (let answer = null; answer === null;) {
        answer = await this.#request(key, nonce, async)
        if (answer !== null) this.acknowledged.push(answer)
      }
      for (const look of this.#answered.splice(0)) look()
    }
  }

  async #request(key: string, nonce: string, async: boolean): Promise<Acknowledged | null> {
    const url = this.#url
    if (url === null) {
      await new Promise<void>((wake) => this.#awake.push(wake))
      return null
    }
    try {
      const response = await fetch(`${url}/v1/keys/${key}/turns`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'idempotency-key': nonce,
          ...(async ? { prefer: 'respond-async' } : {}),
        },
        body: JSON.stringify({ input: nonce }),
        signal: AbortSignal.timeout(REQUEST_MS),
      })
      const body = (await response.json()) as any
      if (response.status !== 200 && response.status !== 202) return await pause()
      const { id, state, reply } = body.turn
      const session = typeof body.session === 'string' ? body.session : body.session.id
      return { key, session, turn: id, nonce, state, reply: reply?.text ?? null }
    } catch {
      // The server is gone, perhaps after it did it all: the same key asks again.
      return await pause()
    }
  }
}
