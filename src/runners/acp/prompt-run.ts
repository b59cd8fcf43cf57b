/** One prompt of one turn: outputs go to the turn, permission requests become asks. */
import type { RequestPermissionOutcome } from '@agentclientprotocol/sdk'
import type { RunnerContext } from '../../core/index.ts'
import type { Outbox } from '../outbox.ts'
import { askPermission, type PermissionRequest } from '../permission.ts'
import type { AcpSettings } from './options.ts'
import { UpdateConverter, type AcpUpdate, type PromptResponse } from './updates.ts'

export type PromptRunParts = {
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly settings: AcpSettings
  /** The agent's session id, if another child can continue the session by it. */
  readonly restorableId: string | null
}

export class PromptRun {
  readonly #parts: PromptRunParts
  readonly #converter = new UpdateConverter()
  #binding: Promise<void> | null = null

  constructor(parts: PromptRunParts) {
    this.#parts = parts
  }

  update(update: AcpUpdate): void {
    if (UpdateConverter.isWork(update)) this.#bind()
    for (const output of this.#converter.take(update)) this.#parts.outbox.push(output)
  }

  permission(request: PermissionRequest): Promise<RequestPermissionOutcome> {
    this.#bind()
    const { context, settings } = this.#parts
    return askPermission(context, request, settings)
  }

  /** Resolves when the turn can accept more output. */
  room(): Promise<void> {
    return this.#parts.outbox.room()
  }

  async end(response: PromptResponse): Promise<void> {
    const { context, outbox } = this.#parts
    this.#bind()
    for (const output of this.#converter.end(response)) outbox.push(output)
    await this.#binding
    if (response.stopReason === 'cancelled' && !context.signal.aborted) {
      throw new Error('the agent cancelled the turn by itself')
    }
  }

  /** Binds the agent's session once the agent works in it. */
  #bind(): void {
    const { context, restorableId: id } = this.#parts
    if (this.#binding !== null || id === null) return
    this.#binding = context.session.backend === null ? context.bind(id) : Promise.resolve()
    // `end` awaits it; this prevents an unhandled rejection until then.
    this.#binding.catch(() => undefined)
  }
}
