/**
 * Callers with numbered turns, some of which ask for a permission. Some callers send an idempotency
 * key and try again wherever they can until they are answered; some send none, and never try again
 * what may have been carried out. Whoever was answered looks whether any node knows less than that.
 */
import { setTimeout } from 'node:timers/promises'
import { Random } from '../simulation/random.ts'

export type Sent = {
  readonly key: string
  readonly text: string
  /** Null: the caller never learned what became of it. */
  readonly answer: {
    readonly session: string
    readonly turn: string
    readonly reply: string
  } | null
}

/** A look at a session by somebody who knew that its log had come this far. */
export type Look = { readonly session: string; readonly known: number; readonly seq: number }

const LOOK_MS = 2_000

export class Load {
  readonly sent: Sent[] = []
  readonly looks: Look[] = []
  readonly #urls: readonly string[]
  readonly #state = { isOn: true }
  readonly #callers: Promise<void>[]

  constructor(urls: readonly string[], { seed, keys }: { seed: number; keys: readonly string[] }) {
    this.#urls = urls
    this.#callers = keys.flatMap((key, index) =>
      ['patient', 'hasty'].map((kind, place) =>
        this.#call(key, kind === 'patient', new Random(seed + 10 * index + place)),
      ),
    )
  }

  /** No new turns; resolves when the last ones are answered. */
  async end(): Promise<void> {
    this.#state.isOn = false
    await Promise.all(this.#callers)
  }

  async #call(key: string, isPatient: boolean, random: Random): Promise<void> {
    for (let n = 0; this.#state.isOn; n += 1) {
      // Some sessions have turns that outlive a lease.
      const ms = key.endsWith('-long') ? random.between(3_000, 4_500) : random.between(1, 400)
      const text = `${key}-${isPatient ? 'p' : 'h'}${n} ${ms}${questionOf(random)}`
      const answer = isPatient
        ? await this.#insist(key, text, random)
        : await this.#try(key, text, random)
      this.sent.push({ key, text, answer })
      if (answer !== null) await this.#look(answer, random)
      await setTimeout(random.between(0, 60))
    }
  }

  /** Turns are numbered by their place in the log: an answered one is there. */
  async #look({ session, turn }: NonNullable<Sent['answer']>, random: Random): Promise<void> {
    try {
      const response = await fetch(`${random.pick(this.#urls)}/v1/sessions/${session}`, {
        signal: AbortSignal.timeout(LOOK_MS),
      })
      const { seq }: any = await response.json()
      if (response.status !== 200) return
      this.looks.push({ session, known: Number(turn.slice(1)) + 1, seq })
    } catch {
      // Who is not answered has not been told anything wrong.
    }
  }

  async #insist(key: string, text: string, random: Random): Promise<Sent['answer']> {
    for (;;) {
      const answer = await this.#try(key, text, random, { 'idempotency-key': text })
      if (answer !== null) return answer
      await setTimeout(random.between(20, 200))
    }
  }

  async #try(
    key: string,
    text: string,
    random: Random,
    headers: Record<string, string> = {},
  ): Promise<Sent['answer']> {
    try {
      const response = await fetch(`${random.pick(this.#urls)}/v1/keys/${key}/turns`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ input: text, waitMs: 20_000 }),
        // A frozen node answers nobody.
        signal: AbortSignal.timeout(15_000),
      })
      const body: any = await response.json()
      if (response.status !== 200) return null
      const { id, state, reply } = body.turn
      // Interrupted: it is in the log, and its caller knows.
      return {
        session: body.session,
        turn: id,
        reply: state === 'done' ? reply.text : `(${state})`,
      }
    } catch {
      return null
    }
  }
}

/** One in three asks, and waits or does not wait for somebody who can answer. */
export function questionOf(random: Random): string {
  if (!random.chance(1 / 3)) return ''
  return ` ask ${random.between(800, 2_000)} ${random.pick(['wait', 'deny'])}`
}
