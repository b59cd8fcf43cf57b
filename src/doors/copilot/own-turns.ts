/**
 * Which turns a client waits for on one connection, and when it is told that its message is
 * answered. The SDK's `sendAndWait` listens, sends, and returns the last `assistant.message` before
 * the first `session.idle` or `session.error` once its `session.send` is answered. No event says to
 * which message it belongs. So that each call gets its own reply, also beside other clients:
 *
 * 1. A client that has sent is told `session.idle` and `session.error` for its own turns only. Of
 *    other turns it hears `assistant.idle`. One that has sent nothing hears the end of each turn.
 * 2. A call may hear an end that is not its own: if the client has another turn, or has not shown
 *    that it is past the last end. Its `session.send` is answered only when its own reply has been
 *    told, and with the failure if there is none: the call then returns that.
 * 3. Every turn that is done or cancelled tells an `assistant.message`, if need be an empty one.
 *
 * Where a client stands shows by requests (`ping`) before and behind an end: it handles what comes
 * in order, and answers what it does not know with an error. A call that is sent before the first
 * answer has begun before the end. One that is sent between the two answers has usually begun when
 * the end was handled, and is answered at once; but if the client has made several calls at once
 * before, it may have begun just before the end.
 */

/** Tells a request's outcome: null, or why it failed. */
export type Answer = (failure: TurnFailure | null) => void

export type TurnFailure = { readonly code: string; readonly message: string }

export class OwnTurns {
  /** The turns that wait or run, with the requests that are answered at their ends. */
  readonly #open = new Map<string, Answer[]>()
  /** Requests for turns that are under way. */
  readonly #sending = new Set<Promise<unknown>>()
  #hasSent = false
  /** It has made several calls at once. */
  isConcurrent = false
  /** Ends that the client may not have come to, and that it may not be past. */
  #ahead = 0
  #around = 0

  /** Whether a call that begins now may hear an end that is not its own. */
  get isCrowded(): boolean {
    if (this.#open.size > 0 || this.#sending.size > 0) return true
    return this.#ahead > 0 || (this.isConcurrent && this.#around > 0)
  }

  /** `request` gets its turn, and adds it, before it settles. */
  sending(request: Promise<void>): Promise<void> {
    this.isConcurrent ||= this.#open.size > 0 || this.#sending.size > 0
    this.#hasSent = true
    this.#sending.add(request)
    const sent = (): void => void this.#sending.delete(request)
    request.then(sent, sent)
    return request
  }

  /** When all that was sent by now has its turn, or was refused. */
  async settled(): Promise<void> {
    if (this.#sending.size > 0) await Promise.allSettled(this.#sending)
  }

  /** `answer`: of a request that is answered at the turn's end; null: it is answered already. */
  add(turn: string, answer: Answer | null): void {
    const answers = this.#open.get(turn) ?? []
    if (answer !== null) answers.push(answer)
    this.#open.set(turn, answers)
  }

  /**
   * A turn has ended, and its last message was told. Answers what waited for it; true if the client
   * is to be told that it is idle.
   */
  end(turn: string, failure: TurnFailure | null): boolean {
    const answers = this.#open.get(turn)
    this.#open.delete(turn)
    for (const answer of answers ?? []) answer(failure)
    return answers !== undefined || !this.#hasSent
  }

  /** An end is told; the returned function is for when the client has come to it. */
  ahead(): () => void {
    this.#ahead += 1
    return () => void (this.#ahead -= 1)
  }

  /** The same for when the client is past it. */
  around(): () => void {
    this.#around += 1
    return () => void (this.#around -= 1)
  }

  /** No end will be told any more. */
  fail(failure: TurnFailure): void {
    const answers = [...this.#open.values()].flat()
    this.#open.clear()
    for (const answer of answers) answer(failure)
  }
}
