/** One prompt of one turn: outputs go to the turn, requests of the agent become asks. */
import type { RequestPermissionOutcome } from '@agentclientprotocol/sdk'
import type { RunnerContext } from '../../core/index.ts'
import {
  ALLOW,
  askFor,
  askForm,
  choiceOf,
  DENY,
  isGranted,
  type Ask,
  type FormAnswer,
} from '../asking.ts'
import { asText, type JsonObject } from '../json.ts'
import { activity, type Outbox } from '../outbox.ts'
import type { AcpSettings } from './options.ts'
import type { AcpSession } from './session.ts'
import {
  optionAllowed,
  permissionAnswer,
  permissionQuestion,
  type PermissionRequest,
} from './tools.ts'
import { UpdateConverter, type AcpUpdate, type PromptResponse } from './updates.ts'

type PromptRunParts = {
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly settings: AcpSettings
  readonly session: AcpSession
  /** Whether another child can continue the session by its id. */
  readonly isRestorable: boolean
  /** Gives the running prompt a message of its user, if the agent takes any. */
  readonly say: (text: string) => void
}

export class PromptRun {
  readonly #parts: PromptRunParts
  readonly #converter = new UpdateConverter()
  readonly #ask: Ask
  #binding: Promise<void> | null = null
  /** Why no person has answered, if none has. */
  #unanswered: string | null = null

  constructor(parts: PromptRunParts) {
    this.#parts = parts
    this.#ask = askFor(parts.context, parts.settings, (reason, { question }) => {
      parts.outbox.push(activity('permission_denied', [{ tool: question, reason }]))
      // The protocol has no words for an answer that is none.
      if (this.#unanswered !== reason) parts.say(reason)
      this.#unanswered = reason
    })
  }

  update(update: AcpUpdate): void {
    const { outbox, context, session } = this.#parts
    const before = session.mode
    session.update(update)
    if (UpdateConverter.isWork(update)) this.#bind()
    for (const output of this.#converter.take(update)) outbox.push(output)
    this.recordCommands()
    // The agent has changed its mode by itself, as when a plan was approved.
    if (session.mode === null || session.mode === before) return
    // A mode that the operator does not allow is not recorded: the next turn takes it back.
    context.configure({ mode: session.mode }).catch(() => undefined)
  }

  /** They are told when a session is opened too, before there is a turn. */
  recordCommands(): void {
    const commands = this.#parts.session.takeCommands()
    if (commands !== null) this.#parts.outbox.push(activity('commands', { commands }))
  }

  async permission(request: PermissionRequest): Promise<RequestPermissionOutcome> {
    this.#bind()
    const { context, outbox } = this.#parts
    const known = this.#converter.tools.get(request.toolCall.toolCallId)
    const question = permissionQuestion(request, known)
    const optionId = optionAllowed(question, (grant) => isGranted(context, grant))
    if (optionId === null) return permissionAnswer(await this.#ask(question))
    outbox.push(activity('permission_allowed', [{ tool: question.question }]))
    return { outcome: 'selected', optionId }
  }

  get askClient(): RunnerContext['askClient'] {
    return this.#parts.context.askClient
  }

  async elicitation({ mode, message, requestedSchema, url }: JsonObject): Promise<FormAnswer> {
    this.#bind()
    if (mode !== 'url') return askForm(this.#ask, asText(message), requestedSchema)
    const detail = { url: asText(url) }
    const asked = { kind: 'permission', question: asText(message), options: [ALLOW, DENY], detail }
    const choice = choiceOf(await this.#ask(asked))
    if (choice === null) return { action: 'cancel' }
    return choice.options[0] === ALLOW.id
      ? { action: 'accept', content: {} }
      : { action: 'decline' }
  }

  /** Resolves when the turn can accept more output. */
  room(): Promise<void> {
    return this.#parts.outbox.room()
  }

  async end(response: PromptResponse): Promise<void> {
    const { context, outbox, session } = this.#parts
    this.#bind()
    const outputs = this.#converter.end(response, session.takeCost())
    for (const output of outputs) outbox.push(output)
    await this.#binding
    if (response.stopReason === 'cancelled' && !context.signal.aborted) {
      throw new Error(this.#unanswered ?? 'the agent cancelled the turn by itself')
    }
  }

  /** Binds the agent's session once the agent works in it. */
  #bind(): void {
    const { context, session, isRestorable } = this.#parts
    if (this.#binding !== null || !isRestorable) return
    const isNew = context.session.backend === null
    this.#binding = isNew ? context.bind(session.id) : Promise.resolve()
    // `end` awaits it; this prevents an unhandled rejection until then.
    this.#binding.catch(() => undefined)
  }
}
