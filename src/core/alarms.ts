/**
 * The timers of a session: each posts a command when it is due. By then the command may be moot;
 * `decide` finds out. They follow the session's events, and are set again by its next owner.
 */
import { unanswerableAt } from './asks.ts'
import type { Clock } from './clock.ts'
import type { Command, Moment } from './commands.ts'
import type { SessionEvent } from './events.ts'
import type { Session } from './state.ts'
import { isTerminal } from './turns.ts'

/** The timer that settles asks which no client is left to answer. */
const UNANSWERABLE = 'unanswerable'

export class Alarms {
  readonly #clock: Clock
  /** The time by the log: that of its next event. */
  readonly #now: () => number
  readonly #post: (command: Command) => Promise<unknown>
  readonly #hasFollower: Moment['hasFollower']
  /** How to cancel them, by the turn, ask, attachment or link that they are about. */
  readonly #cancels = new Map<string, () => void>()

  constructor(
    clock: Clock,
    {
      now,
      post,
      hasFollower,
    }: {
      now: () => number
      post: (command: Command) => Promise<unknown>
      hasFollower: Moment['hasFollower']
    },
  ) {
    this.#clock = clock
    this.#now = now
    this.#post = post
    this.#hasFollower = hasFollower
  }

  /** Sets the timers that the last owner had. */
  restore({ queued, attachments, links }: Session): void {
    for (const { id, expiresAt } of queued) this.#expire(id, expiresAt)
    for (const { id, graceUntil } of attachments) this.#lapse(id, graceUntil)
    for (const { id, expiresAt } of links) this.#unlink(id, expiresAt)
  }

  follow(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.queued':
        return this.#expire(event.turn, event.expiresAt ?? null)
      case 'turn.started':
        return this.#cancel(event.turn)
      case 'ask.opened':
        return this.#set(event.ask, event.deadline, event.at, { type: 'timeout', ask: event.ask })
      case 'ask.settled':
        return this.#cancel(event.ask)
      case 'attachment.detached':
        return this.#lapse(event.attachment, event.graceUntil)
      case 'attachment.resumed':
      case 'attachment.ended':
        return this.#cancel(event.attachment)
      case 'link.created':
        return this.#unlink(event.link, event.expiresAt)
      case 'link.revoked':
        return this.#cancel(event.link)
      default:
        if ('turn' in event && isTerminal(event)) this.#cancel(event.turn)
    }
  }

  /** A client that was lost counts as one to ask for a while, and then no more. */
  stepped(session: Session): void {
    const at = session.asks.length === 0 ? null : unanswerableAt(session, this.#hasFollower)
    if (at === null) return this.#cancel(UNANSWERABLE)
    this.#set(UNANSWERABLE, at, this.#now(), { type: 'unanswerable', at })
  }

  clear(): void {
    for (const cancel of this.#cancels.values()) cancel()
    this.#cancels.clear()
  }

  #expire(turn: string, at: number | null): void {
    this.#set(turn, at, this.#now(), { type: 'finish', turn, end: { state: 'expired' } })
  }

  #lapse(attachment: string, at: number | null): void {
    this.#set(attachment, at, this.#now(), { type: 'lapse', attachment, graceUntil: at ?? 0 })
  }

  /** A caller has set the end of a link, so it is not counted from the time of the log. */
  #unlink(link: string, at: number | null): void {
    this.#set(link, at, this.#clock.now(), { type: 'unlink', link, by: null })
  }

  /** Replaces the timer that is about the same; null: it is never due. */
  #set(about: string, at: number | null, now: number, command: Command): void {
    this.#cancel(about)
    if (at === null) return
    // If the session is released meanwhile, its next owner sets the timer again.
    const run = (): void => void this.#post(command).catch(() => undefined)
    this.#cancels.set(about, this.#clock.after(Math.max(0, at - now), run))
  }

  #cancel(about: string): void {
    this.#cancels.get(about)?.()
    this.#cancels.delete(about)
  }
}
