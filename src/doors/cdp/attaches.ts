/**
 * Attachments that a session has asked for. The browser tells of a new session before it answers
 * the command that asked, and the event does not say for which command it is. As long as that makes
 * a difference, the event waits for the reply that does, and all that follow it wait behind.
 */
import type { BrowserEvent } from './link.ts'

export type Attach = { readonly target: string; readonly isNested: boolean }

export class Attaches {
  /** Asked for and not answered. */
  readonly #pending = new Set<Attach>()
  /** By the browser's name of a session whose event waits: what the reply has told. */
  readonly #told = new Map<unknown, boolean>()
  #waiting: BrowserEvent[] = []

  begin(attach: Attach): void {
    this.#pending.add(attach)
  }

  /** Its reply has come, with the browser's name of the session. Returns what waited for that. */
  end(attach: Attach, upstream: unknown, auto = false): readonly BrowserEvent[] {
    this.#pending.delete(attach)
    const waiting = this.#waiting
    this.#waiting = []
    this.#told.clear()
    const told = waiting.findIndex(({ params }) => params['sessionId'] === upstream)
    // Commands are answered in their order: nobody asked for the sessions told of before this one.
    for (const { params } of waiting.slice(0, told)) this.#told.set(params['sessionId'], auto)
    if (told !== -1) this.#told.set(upstream, attach.isNested)
    return waiting
  }

  /** Whether events wait. */
  get isWaiting(): boolean {
    return this.#waiting.length > 0
  }

  wait(event: BrowserEvent): void {
    this.#waiting.push(event)
  }

  /**
   * Whether a new session's messages travel inside its parent's; null if only a reply can tell.
   * `auto` is what holds for those that nobody asked for; undefined: there are none.
   */
  isNested(upstream: string, target: string, auto: boolean | undefined): boolean | null {
    const told = this.#told.get(upstream)
    if (told !== undefined) return told
    const asked = [...this.#pending].filter((attach) => attach.target === target)
    const possible = new Set(asked.map(({ isNested }) => isNested))
    if (auto !== undefined || possible.size === 0) possible.add(auto ?? false)
    const [first = false] = possible
    return possible.size > 1 ? null : first
  }
}
