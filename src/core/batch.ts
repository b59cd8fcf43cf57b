/** Commands of one session that are decided together, and appended as one durable step. */
import type { Command, Moment } from './commands.ts'
import type { HoldfastError } from './errors.ts'
import { isIgnorable } from './event-table.ts'
import type { Draft, SessionEvent } from './events.ts'
import { decide, evolve } from './session.ts'
import type { Session } from './state.ts'

/** What one command has made, and how its caller is answered once the batch is durable. */
type Decided = {
  /** How many of the batch's events are its own or came before. */
  readonly end: number
  readonly answer: () => void
  readonly refuse: (error: unknown) => void
}

export class Batch {
  /** The state after all that was decided. */
  session: Session
  readonly events: SessionEvent[] = []
  /** The events as JSON. */
  readonly bodies: string[] = []
  readonly #moment: Moment
  readonly #decided: Decided[] = []

  constructor(session: Session, moment: Moment) {
    this.session = session
    this.#moment = moment
  }

  /** The time of its events. */
  get at(): number {
    return this.#moment.at
  }

  /**
   * Decides one more command on top of those before it, or how to make it once those are decided.
   * Exactly one of the callbacks is called, once it is known whether the batch is in the log.
   * Returns the events, or null for a refusal.
   */
  add(
    command: Command | (() => Command),
    settle: (events: readonly SessionEvent[]) => void = () => undefined,
    refuse: (error: unknown) => void = () => undefined,
  ): readonly SessionEvent[] | null {
    try {
      const events = this.#decide(typeof command === 'function' ? command() : command)
      this.#decided.push({ end: this.events.length, answer: () => settle(events), refuse })
      return events
    } catch (refusal) {
      const answer = (): void => refuse(refusal)
      this.#decided.push({ end: this.events.length, answer, refuse })
      return null
    }
  }

  /** All of its events or none: a runner's output may turn out not to be JSON. */
  #decide(command: Command): readonly SessionEvent[] {
    const { seq } = this.session
    const events = decide(this.session, command, this.#moment).map((draft, index) =>
      place(draft, seq + 1 + index, this.at),
    )
    const bodies = events.map((event) => JSON.stringify(event))
    for (const event of events) this.session = evolve(this.session, event)
    this.events.push(...events)
    this.bodies.push(...bodies)
    return events
  }

  /** The batch is durable: acts on each command's events, then answers its caller. */
  settle(act: (event: SessionEvent, json: string) => void): void {
    let index = 0
    for (const { end, answer } of this.#decided) {
      for (; index < end; index += 1) {
        act(this.events[index] as SessionEvent, this.bodies[index] as string)
      }
      answer()
    }
  }

  fail(error: HoldfastError): void {
    for (const { refuse } of this.#decided) refuse(error)
  }
}

/** Gives a draft its position in the log. `decide` made it for this alone, so no copy is taken. */
function place(draft: Draft, seq: number, at: number): SessionEvent {
  const event = draft as Draft & { seq: number; at: number }
  event.seq = seq
  event.at = at
  if (isIgnorable(event.type)) (event as { ignorable?: true }).ignorable = true
  return event
}
