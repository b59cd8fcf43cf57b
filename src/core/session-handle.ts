/** A session in a program's hand. It holds nothing itself: every call goes to the authority. */
import { enterLane, submitTurn } from './admission.ts'
import type { Ask } from './asks.ts'
import type { Authority } from './authority.ts'
import { HoldfastError } from './errors.ts'
import { FeedItem, type Delta, type Position } from './feed.ts'
import { parseEvent, readEvents, readMessages, readTurn, readableRow } from './history.ts'
import { invalid, turnRequest, type TurnOptions } from './requests.ts'
import type { Message } from './runner.ts'
import type { Session, SessionEvent } from './session.ts'
import type { ReadResult } from './store.ts'
import { TurnHandle, type Admission } from './turn-handle.ts'
import type { Input, TurnRecord } from './turns.ts'

export type FollowOptions = {
  /** After this event; 0 is the beginning. */
  readonly after?: number
  /** And after this delta of the turn then running. */
  readonly afterDelta?: number
  readonly signal?: AbortSignal
}

export class SessionHandle {
  readonly id: string
  /** The key it was resolved by, if any. */
  readonly key: string | null
  /** This very call created it. */
  readonly isNew: boolean
  readonly #authority: Authority

  constructor(authority: Authority, id: string, key: string | null = null, isNew = false) {
    this.#authority = authority
    this.id = id
    this.key = key
    this.isNew = isNew
  }

  /** The session as it is now, open or closed. */
  state(): Promise<Session> {
    return this.#authority.view(this.id)
  }

  /**
   * Waits for the lane, then runs. Await it for the result, or iterate it for the answer as it
   * comes.
   */
  turn(input: Input, options: TurnOptions = {}): TurnHandle {
    return new TurnHandle(this.#enter(input, options), options)
  }

  async #enter(input: Input, options: TurnOptions): Promise<Admission> {
    const request = turnRequest(input, options, this.#authority)
    const live = await this.#authority.open(this.id)
    return { live, turn: await enterLane(live, request) }
  }

  /** Records the turn in the queue and returns at once: it survives a crash there. */
  async submit(input: Input, options: TurnOptions = {}): Promise<TurnRecord> {
    const request = turnRequest(input, options, this.#authority)
    const live = await this.#authority.open(this.id)
    return live.readTurn(await submitTurn(live, request))
  }

  /** A turn as it is now. */
  getTurn(turn: string): Promise<TurnRecord> {
    const { store, limits } = this.#authority
    return readTurn(store, this.id, turn, limits.pageEvents)
  }

  /** The turn when it is over. */
  async finished(turn: string): Promise<TurnRecord> {
    const record = await this.getTurn(turn)
    if (record.endedAt !== null) return record
    return (await this.#authority.open(this.id)).finished(turn)
  }

  /** Cancels a turn that waits or runs, and returns it when it is over. */
  async cancelTurn(turn: string, reason = 'cancelled'): Promise<TurnRecord> {
    const record = await this.getTurn(turn)
    if (record.endedAt !== null) return record
    return (await this.#authority.open(this.id)).cancel(turn, reason)
  }

  /**
   * What is in the log after a position, then what happens, as it happens, until the session ends.
   */
  async *events(options: FollowOptions = {}): AsyncGenerator<SessionEvent | Delta> {
    for await (const items of this.feed(options)) for (const { event } of items) yield event
  }

  /** Like `events`, in batches of all that is ready, each with its JSON. For doors. */
  async *feed(options: FollowOptions = {}): AsyncGenerator<readonly FeedItem[]> {
    const { after = 0, afterDelta = 0, signal } = options
    const { row } = await this.read(after, 0)
    if (row?.state === 'open') {
      const position: Position = { seq: after, delta: afterDelta }
      yield* (await this.#authority.open(this.id)).follow(position, signal)
      return
    }
    const { store, limits } = this.#authority
    for await (const page of readEvents(store, this.id, after, limits.pageEvents)) {
      yield page.map((stored) => new FeedItem(stored.seq, parseEvent(stored), stored.body))
    }
  }

  /** One page of the log. Throws if there is no such log, or it does not reach `after`. */
  async read(after: number, limit: number): Promise<ReadResult> {
    const result = await this.#authority.store.read(this.id, after, limit)
    const { seq } = readableRow(result.row, this.id)
    if (after > seq) throw invalid('after', `is ahead of the log, which ends at ${seq}`)
    return result
  }

  /** The conversation, oldest first. */
  messages(): AsyncGenerator<Message> {
    const { store, limits } = this.#authority
    return readMessages(store, this.id, limits.pageEvents)
  }

  /** The questions that wait for an answer. */
  async asks(): Promise<readonly Ask[]> {
    return (await this.state()).asks
  }

  /** Answers a question; the first valid answer wins, later ones are refused with `ask_settled`. */
  async answer(ask: string, answer: unknown): Promise<void> {
    const live = await this.#authority.open(this.id)
    if (JSON.stringify(answer ?? null).length > this.#authority.limits.askBytesMax) {
      throw new HoldfastError('body_too_large', 'the answer is too large')
    }
    await live.post({ type: 'answer', ask, answer, by: null })
  }

  /** Holds the session open for a client and says which kinds of ask it answers. */
  async attach({ answers = [] }: { readonly answers?: readonly string[] } = {}) {
    const attachment = this.#authority.entropy.id()
    const live = await this.#authority.open(this.id)
    await live.post({ type: 'attach', attachment, answers })
    return new AttachmentHandle(this.#authority, this.id, attachment)
  }

  /** Closes the session for good: what is pending is settled, nothing is delivered any more. */
  async close(reason = 'closed'): Promise<Session> {
    return this.#authority.close(this.id, reason)
  }

  /** Closes the session and erases its log for ever. */
  async erase(): Promise<void> {
    await this.#authority.close(this.id, 'erased')
    await this.#authority.store.erase(this.id)
  }
}

/** One client's hold on a session. */
export class AttachmentHandle {
  readonly id: string
  readonly session: string
  readonly #authority: Authority

  constructor(authority: Authority, session: string, id: string) {
    this.#authority = authority
    this.session = session
    this.id = id
  }

  /** The connection was lost: what that means is the session's reconnect policy. */
  async lose(): Promise<void> {
    const at = this.#authority.clock.now()
    await (await this.#live()).post({ type: 'lose', attachment: this.id, at })
  }

  /** The client is back within the grace time. */
  async resume(): Promise<void> {
    await (await this.#live()).post({ type: 'resume', attachment: this.id })
  }

  /** The client said goodbye. */
  async leave(reason = 'left'): Promise<void> {
    await (await this.#live()).post({ type: 'leave', attachment: this.id, reason })
  }

  async answer(ask: string, answer: unknown): Promise<void> {
    await (await this.#live()).post({ type: 'answer', ask, answer, by: this.id })
  }

  #live() {
    return this.#authority.open(this.session)
  }
}
