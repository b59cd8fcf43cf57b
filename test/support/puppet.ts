/** An agent that does what the test tells it, when the test tells it. */
import type { Agent, AgentContext } from '../../src/runners/function.ts'
import { gate } from './gate.ts'

type Step = { readonly say: string } | { readonly end: string | undefined }

/** A turn that waits for its next word. */
export class Strings {
  readonly context: AgentContext
  readonly #steps: Step[] = []
  #wake: (() => void) | null = null

  constructor(context: AgentContext) {
    this.context = context
  }

  /** Streams a part of the answer. */
  say(text: string): void {
    this.#push({ say: text })
  }

  /** Ends the turn, with this as its whole answer or with what was said. */
  end(text?: string): void {
    this.#push({ end: text })
  }

  #push(step: Step): void {
    this.#steps.push(step)
    this.#wake?.()
  }

  async *play(): AsyncGenerator<string, string | undefined, undefined> {
    const { signal } = this.context
    signal.addEventListener('abort', () => this.#wake?.())
    for (;;) {
      const step = this.#steps.shift()
      if (signal.aborted) return undefined
      if (step === undefined) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      } else if ('end' in step) return step.end
      else yield step.say
    }
  }
}

export class Puppet {
  readonly #turns = new Map<string, ReturnType<typeof gate<Strings>>>()

  readonly agent: Agent = (turn, context) => {
    const strings = new Strings(context)
    this.#turn(turn.text).open(strings)
    return strings.play()
  }

  /** The strings of the turn with this input, once it runs. */
  turn(text: string): Promise<Strings> {
    return this.#turn(text).opened
  }

  #turn(text: string): ReturnType<typeof gate<Strings>> {
    const known = this.#turns.get(text) ?? gate<Strings>()
    this.#turns.set(text, known)
    return known
  }
}
