/**
 * Lets one child start alone, until a first one has started: Codex makes a database in its home,
 * and of several that do so at once all but one exit (0.166).
 */
import { unlessAborted } from '../../platform/clock.ts'

/** Says whether the child has started. The first call counts. */
type Started = (hasStarted: boolean) => void

export class FirstStart {
  #isDone = false
  /** Resolves when the child before has started, or has failed. */
  #last: Promise<void> = Promise.resolve()

  /** Resolves when a child may be started. */
  async enter(signal: AbortSignal): Promise<Started> {
    if (this.#isDone) return () => undefined
    const before = this.#last
    let leave: () => void = () => undefined
    const left = new Promise<void>((resolve) => {
      leave = resolve
    })
    this.#last = before.then(() => left)
    await unlessAborted(before, signal).catch((error: unknown) => {
      leave()
      throw error
    })
    return (hasStarted) => {
      this.#isDone ||= hasStarted
      leave()
    }
  }
}
