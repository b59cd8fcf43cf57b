/**
 * Turns as the log tells them: what is said in them, their answer in parts, and their end.
 *
 * A reply says which turn a request became, and it may come after all that turn's events: after a
 * lost connection it may be found again when it is long over. So as long as a request waits for its
 * reply, the turns that end are kept.
 */
import { AnswerText, turnOutcome, type TurnOutcome } from '../wire/answer-text.ts'
import type { Delta, Message, SessionEvent } from '../wire/frames.ts'
import { errorOf, HoldfastClientError, type Ending } from './endings.ts'
import { deferred } from './requests.ts'

export type ClientMessage = Message

/** What an event adds to the conversation. */
export function clientMessagesOf(event: SessionEvent): readonly ClientMessage[] {
  const { seq, at } = event
  if (event.type === 'session.created') {
    return (event.origin?.messages ?? []).map((message) => ({ seq, turn: '', ...message }))
  }
  if (event.type === 'turn.started' || event.type === 'turn.steered') {
    const { turn, input } = event
    if (typeof input === 'string') return [{ seq, turn, role: 'user', text: input, at }]
    const { text, parts } = input
    return [{ seq, turn, role: 'user', text, ...(parts === undefined ? {} : { parts }), at }]
  }
  if (event.type !== 'message.added') return []
  const { turn, role, text, data, partial } = event
  const extra = { ...(data === undefined ? {} : { data }), ...(partial ? { partial } : {}) }
  return [{ seq, turn, role, text, at, ...extra }]
}

/** A turn that is over. One that ended badly does not throw: look at `state`, `error`, `reason`. */
export type ClientTurnResult = TurnOutcome & {
  readonly id: string
  /** The last message, if there was one. */
  readonly reply: { readonly text: string; readonly data?: unknown } | null
}

/** What the server would take for a broken client, and hang up. */
export function turnProblem(input: unknown, waitMs: unknown): HoldfastClientError | null {
  const { text, parts } = (
    typeof input === 'object' && input !== null ? input : { text: input }
  ) as Readonly<Record<string, unknown>>
  const isInput = typeof text === 'string' || (text === undefined && Array.isArray(parts))
  const isWait = waitMs === undefined || (Number.isInteger(waitMs) && Number(waitMs) >= 0)
  if (isInput && isWait) return null
  const problem = isInput
    ? 'waitMs must be a whole number, not negative'
    : 'input must be a text, or an object with a text or parts'
  return new HoldfastClientError('invalid_field', problem)
}

export class TurnTrack {
  readonly id: string
  isOver = false
  readonly #finished = deferred<ClientTurnResult>()
  readonly #parts: string[] = []
  readonly #answer = new AnswerText()
  #reply: ClientTurnResult['reply'] = null
  #wake: (() => void)[] = []

  constructor(id: string) {
    this.id = id
  }

  get finished(): Promise<ClientTurnResult> {
    return this.#finished.promise
  }

  delta(text: string): void {
    this.#add(this.#answer.delta(text))
  }

  message({ text, data }: { readonly text: string; readonly data?: unknown }): void {
    this.#reply = data === undefined ? { text } : { text, data }
    this.#add(this.#answer.message(text))
  }

  finish(outcome: TurnOutcome): void {
    this.isOver = true
    this.#finished.resolve({ id: this.id, reply: this.#reply, ...outcome })
    this.#wakeAll()
  }

  fail(error: HoldfastClientError): void {
    this.isOver = true
    this.#finished.reject(error)
    this.#wakeAll()
  }

  /** Every part from the beginning, however late one begins to read. */
  async *parts(): AsyncGenerator<string> {
    for (let next = 0; ; next += 1) {
      while (next === this.#parts.length && !this.isOver) {
        await new Promise<void>((resolve) => this.#wake.push(resolve))
      }
      const part = this.#parts[next]
      if (part === undefined) break
      yield part
    }
    await this.#finished.promise
  }

  #add(part: string): void {
    if (part === '') return
    this.#parts.push(part)
    this.#wakeAll()
  }

  #wakeAll(): void {
    for (const wake of this.#wake.splice(0)) wake()
  }
}

export class Turns {
  readonly #tracks = new Map<string, TurnTrack>()
  readonly #isReplyDue: () => boolean

  /** `isReplyDue`: a request for a turn waits for its reply. */
  constructor(isReplyDue: () => boolean) {
    this.#isReplyDue = isReplyDue
  }

  /** The turn of a reply, over or not, or not even begun. */
  take(id: string): TurnTrack {
    const track = this.#track(id)
    this.#tidy()
    return track
  }

  event(event: SessionEvent | Delta): void {
    if (event.type === 'delta') return this.#track(event.turn).delta(event.text)
    if (event.type === 'message.added') return this.#track(event.turn).message(event)
    if (event.type === 'turn.started') return void this.#track(event.turn)
    const outcome = turnOutcome(event)
    if (outcome === null || !('turn' in event)) return
    this.#track(event.turn).finish(outcome)
    this.#tidy()
  }

  /** Nothing more will be heard of any of them. */
  end(ending: Ending): void {
    for (const track of this.#tracks.values()) if (!track.isOver) track.fail(errorOf(ending))
    this.#tracks.clear()
  }

  #track(id: string): TurnTrack {
    const track = this.#tracks.get(id) ?? new TurnTrack(id)
    this.#tracks.set(id, track)
    return track
  }

  #tidy(): void {
    if (this.#isReplyDue()) return
    for (const [id, track] of this.#tracks) if (track.isOver) this.#tracks.delete(id)
  }
}

/** One turn in a caller's hand: await it for the result, iterate it for the answer as it comes. */
export class ClientTurn extends Promise<ClientTurnResult> implements AsyncIterable<string> {
  /** Its id, once it has started; or the refusal. */
  readonly started: Promise<string>
  /** With `busy: "steer"`: whether a turn that ran already has taken it as a further message. */
  readonly steered: Promise<boolean>
  readonly #track: Promise<TurnTrack>

  /** What `then` returns is a promise like any other. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  constructor(track: Promise<TurnTrack>, steered: Promise<boolean>) {
    super((resolve, reject) => {
      track.then(({ finished }) => finished).then(resolve, reject)
    })
    this.#track = track
    this.started = track.then(({ id }) => id)
    this.steered = track.then(() => steered)
    // A caller that only iterates learns of a failure there.
    for (const promise of [this.started, this.steered, this]) promise.catch(() => undefined)
  }

  /** The answer in parts as they come: together they are the texts of the turn's messages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    yield* (await this.#track).parts()
  }
}
