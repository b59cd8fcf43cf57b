/**
 * Turns as the log tells them: their answer in parts, and their end.
 *
 * A reply says which turn a request became, and it may come after all that turn's events: after a
 * lost connection it may be found again when it is long over. So as long as a request waits for its
 * reply, the turns that end are kept.
 */
import { AnswerText } from '../wire/answer-text.ts'
import type { Delta, SessionEvent } from '../wire/frames.ts'
import { deferred } from './deferred.ts'
import { errorOf, HoldfastClientError, type Ending } from './errors.ts'

type MessageAdded = Extract<SessionEvent, { readonly type: 'message.added' }>
type TurnFailed = Extract<SessionEvent, { readonly type: 'turn.failed' }>

/** A turn that is over. One that ended badly does not throw: look at `state`, `error`, `reason`. */
export type ClientTurnResult = {
  readonly id: string
  readonly state: 'done' | 'failed' | 'cancelled' | 'interrupted' | 'expired'
  /** The last message, if there was one. */
  readonly reply: { readonly text: string; readonly data?: unknown } | null
  readonly error: TurnFailed['error'] | null
  /** Why it was cancelled or interrupted. */
  readonly reason: string | null
}

/** What the server would take for a broken client, and hang up. */
export function turnProblem(input: unknown, waitMs: unknown): HoldfastClientError | null {
  const text =
    typeof input === 'object' && input !== null ? (input as { text?: unknown }).text : input
  if (typeof text !== 'string') {
    return new HoldfastClientError(
      'invalid_field',
      'input must be a text, or an object with a text',
    )
  }
  if (waitMs === undefined || (Number.isInteger(waitMs) && Number(waitMs) >= 0)) return null
  return new HoldfastClientError('invalid_field', 'waitMs must be a whole number, not negative')
}

/** What is known of one turn. */
export class TurnTrack {
  readonly id: string
  readonly #finished = deferred<ClientTurnResult>()
  readonly #parts: string[] = []
  readonly #answer = new AnswerText()
  #reply: ClientTurnResult['reply'] = null
  #over = false
  #wake: (() => void)[] = []

  constructor(id: string) {
    this.id = id
  }

  get over(): boolean {
    return this.#over
  }

  get finished(): Promise<ClientTurnResult> {
    return this.#finished.promise
  }

  delta(text: string): void {
    this.#add(this.#answer.delta(text))
  }

  message({ text, data }: MessageAdded): void {
    this.#reply = data === undefined ? { text } : { text, data }
    this.#add(this.#answer.message(text))
  }

  finish(end: Pick<ClientTurnResult, 'state' | 'error' | 'reason'>): void {
    this.#over = true
    this.#finished.resolve({ id: this.id, reply: this.#reply, ...end })
    this.#wakeAll()
  }

  fail(error: HoldfastClientError): void {
    this.#over = true
    this.#finished.reject(error)
    this.#wakeAll()
  }

  /** Every part from the beginning, however late one begins to read. */
  async *parts(): AsyncGenerator<string> {
    for (let next = 0; ; next += 1) {
      while (next === this.#parts.length && !this.#over) {
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

  delta({ turn, text }: Delta): void {
    this.#track(turn).delta(text)
  }

  event(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.started':
        return void this.#track(event.turn)
      case 'message.added':
        return this.#track(event.turn).message(event)
      case 'turn.done':
      case 'turn.expired':
        return this.#finish(event, { error: null, reason: null })
      case 'turn.failed':
        return this.#finish(event, { error: event.error, reason: null })
      case 'turn.cancelled':
      case 'turn.interrupted':
        return this.#finish(event, { error: null, reason: event.reason })
      default:
    }
  }

  /** Nothing more will be heard of any of them. */
  end(ending: Ending): void {
    for (const track of this.#tracks.values()) if (!track.over) track.fail(errorOf(ending))
    this.#tracks.clear()
  }

  #finish(
    event: { readonly type: string; readonly turn: string },
    end: Pick<ClientTurnResult, 'error' | 'reason'>,
  ): void {
    const state = event.type.slice('turn.'.length) as ClientTurnResult['state']
    this.#track(event.turn).finish({ state, ...end })
    this.#tidy()
  }

  #track(id: string): TurnTrack {
    const track = this.#tracks.get(id) ?? new TurnTrack(id)
    this.#tracks.set(id, track)
    return track
  }

  #tidy(): void {
    if (this.#isReplyDue()) return
    for (const [id, track] of this.#tracks) if (track.over) this.#tracks.delete(id)
  }
}

/** One turn in a caller's hand: await it for the result, iterate it for the answer as it comes. */
export class ClientTurn implements PromiseLike<ClientTurnResult>, AsyncIterable<string> {
  /** Its id, once it has started; or the refusal. */
  readonly started: Promise<string>
  readonly #track: Promise<TurnTrack>
  readonly #finished: Promise<ClientTurnResult>

  constructor(track: Promise<TurnTrack>) {
    this.#track = track
    this.started = track.then(({ id }) => id)
    this.#finished = track.then(({ finished }) => finished)
    // A caller that only iterates learns of a failure there.
    for (const promise of [this.started, this.#finished]) promise.catch(() => undefined)
  }

  // oxlint-disable-next-line unicorn/no-thenable -- to be awaited is what it is for
  then<Value = ClientTurnResult, Reason = never>(
    onfulfilled?: ((result: ClientTurnResult) => Value | PromiseLike<Value>) | null,
    onrejected?: ((reason: unknown) => Reason | PromiseLike<Reason>) | null,
  ): Promise<Value | Reason> {
    return this.#finished.then(onfulfilled, onrejected)
  }

  catch<Reason = never>(
    onrejected?: ((reason: unknown) => Reason | PromiseLike<Reason>) | null,
  ): Promise<ClientTurnResult | Reason> {
    return this.#finished.catch(onrejected)
  }

  finally(onfinally?: (() => void) | null): Promise<ClientTurnResult> {
    return this.#finished.finally(onfinally)
  }

  /** The answer in parts as they come: together they are the texts of the turn's messages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    yield* (await this.#track).parts()
  }
}
