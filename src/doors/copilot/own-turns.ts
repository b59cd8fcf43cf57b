/**
 * Which turns a client waits for on one connection, and when it is told that its message is
 * answered. The SDK's `sendAndWait` listens, sends, and returns the last `assistant.message` before
 * the first `session.idle` or `session.error` once its `session.send` is answered. No event says to
 * which message it belongs. So that each call gets its own reply, also beside other clients:
 *
 * 1. While a turn of the client waits or runs, the end of another turn is told as
 *    `assistant.idle`, never as `session.idle` or `session.error`.
 * 2. A call may have heard an idle that was not its own: if the client had another turn then, or
 *    had not confirmed the idle told last. Its `session.send` is answered only when its own reply
 *    has been told, and with the failure if there is none: the call then returns that.
 * 3. Every turn that is done or cancelled tells an `assistant.message`, if need be an empty one.
 *
 * An idle is confirmed by the answer to a request that is sent behind it: clients handle what comes
 * in order, and answer a request that they do not know with an error.
 */

/** Tells a request's outcome: null, or why it failed. */
export type Answer = (failure: TurnFailure | null) => void

export type TurnFailure = { readonly code: string; readonly message: string }

export class OwnTurns {
  /** The turns that wait or run, with the requests that are answered at their ends. */
  readonly #open = new Map<string, Answer[]>()
  /** Requests for turns that are under way. */
  readonly #sending = new Set<Promise<unknown>>()
  #unconfirmed = 0

  /** Whether a call that begins now may hear an idle that is not its own. */
  get isCrowded(): boolean {
    return this.#open.size > 0 || this.#sending.size > 0 || this.#unconfirmed > 0
  }

  /** `request` gets its turn, and adds it, before it settles. */
  sending(request: Promise<void>): Promise<void> {
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
    return answers !== undefined || this.#open.size === 0
  }

  /** An idle was told; the returned function is for when the client has confirmed it. */
  told(): () => void {
    this.#unconfirmed += 1
    return () => void (this.#unconfirmed -= 1)
  }

  /** No end will be told any more. */
  fail(failure: TurnFailure): void {
    const answers = [...this.#open.values()].flat()
    this.#open.clear()
    for (const answer of answers) answer(failure)
  }
}
