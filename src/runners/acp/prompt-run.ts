/** One prompt of one turn: outputs go to the turn, permission requests become asks. */
import type { RunnerContext } from '../../core/index.ts'
import type { AcpAgent, PromptListener } from './agent.ts'
import { UpdateConverter, type AcpUpdate } from './update-converter.ts'
import type { AcpOptions } from './options.ts'
import type { Outbox } from './outbox.ts'
import {
  permissionAnswer,
  permissionQuestion,
  type PermissionAnswer,
  type PermissionRequest,
} from './permission.ts'

export type PromptRunParts = {
  readonly agent: AcpAgent
  readonly sessionId: string
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly settings: Pick<AcpOptions, 'askMs' | 'onNobody'>
}

export class PromptRun implements PromptListener {
  readonly #parts: PromptRunParts
  readonly #converter = new UpdateConverter()
  #binding: Promise<void> | null = null

  constructor(parts: PromptRunParts) {
    this.#parts = parts
  }

  async prompt(text: string): Promise<void> {
    const { agent, sessionId, context, outbox } = this.#parts
    const { signal } = context
    const response = await agent.prompt(sessionId, text, { listener: this, signal })
    this.#bind()
    for (const output of this.#converter.end(response)) outbox.push(output)
    await this.#binding
    if (response.stopReason === 'cancelled' && !signal.aborted) {
      throw new Error('the agent cancelled the turn by itself')
    }
  }

  update(update: AcpUpdate): void {
    if (UpdateConverter.isWork(update)) this.#bind()
    for (const output of this.#converter.take(update)) this.#parts.outbox.push(output)
  }

  async permission(request: PermissionRequest): Promise<PermissionAnswer> {
    this.#bind()
    const { context, settings } = this.#parts
    try {
      return permissionAnswer(await context.ask(permissionQuestion(request, settings)))
    } catch {
      // The turn has ended, or too many asks are open: the request was not allowed.
      return { outcome: 'cancelled' }
    }
  }

  room(): Promise<void> {
    return this.#parts.outbox.room()
  }

  /** Binds the agent's session once the agent works in it. */
  #bind(): void {
    const { agent, context, sessionId } = this.#parts
    if (this.#binding !== null || !agent.isRestorable) return
    this.#binding = context.session.backend === null ? context.bind(sessionId) : Promise.resolve()
    // `prompt` awaits it at the end; this prevents an unhandled rejection until then.
    this.#binding.catch(() => undefined)
  }
}
