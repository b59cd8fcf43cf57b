/** One turn of Claude Code: its outputs go to the turn, its permission requests become asks. */
import { randomUUID } from 'node:crypto'
import {
  chosen,
  toolKind,
  type AskOutcome,
  type Question,
  type RunnerContext,
  type Settings,
} from '../../core/index.ts'
import type { Places } from '../agent-settings.ts'
import { askFor } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { activity, type Outbox } from '../outbox.ts'
import type { TurnWork } from '../pooled-runner.ts'
import type { ClaudeAgent, ClaudeTurn } from './agent.ts'
import { failed, isFree, toolResult, type ToolResult } from './client-tools.ts'
import type { ClaudeOutput } from './messages.ts'
import type { ClaudeSettings } from './options.ts'
import {
  allowedBefore,
  permissionAnswer,
  permissionQuestion,
  questionsAnswer,
  questionsOf,
  suggestionsOf,
  unanswered,
  type PermissionAnswer,
} from './permission.ts'
import type { ClaudeStart } from './start.ts'
import { detailOf } from './tools.ts'

/** What is kept for a session while its child may come and go. */
export class SessionMemory {
  /** The slash commands that were recorded last. */
  commands = ''
  /** The turn that runs. */
  turn: { configure(settings: Settings): void } | null = null
}

type TurnParts = {
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly memory: SessionMemory
  readonly settings: ClaudeSettings
  readonly start: ClaudeStart
  readonly places: Places
} & Pick<TurnWork, 'keep' | 'sent'>

/** The description of a slash command, in characters. */
const DESCRIPTION_CHARS_MAX = 300
/** Of a tool's arguments: an ask cuts what is longer. */
const INPUT_CHARS_MAX = 16_384

export class TurnRun implements ClaudeTurn {
  readonly parts: TurnParts
  readonly prompt = randomUUID()
  /** Whether the agent has said or done something. */
  hasOutput = false
  #failure: string | null = null
  #result: string | null = null
  #lastMessage: string | null = null
  #agent: ClaudeAgent | null = null

  constructor(parts: TurnParts) {
    this.parts = parts
  }

  begin(agent: ClaudeAgent): void {
    const { memory, outbox, sent } = this.parts
    this.#agent = agent
    sent(this.prompt)
    const commands = asList(agent.commands).map((one) => commandOf(asObject(one)))
    const told = JSON.stringify(commands)
    if (told === memory.commands) return
    memory.commands = told
    outbox.push(activity('commands', { commands }))
  }

  output(output: ClaudeOutput): void {
    switch (output.type) {
      case 'session':
        return this.#checkSession(output.id)
      case 'mode':
        return this.#recordMode(output.mode)
      case 'position':
        return this.#recordPosition(output.message)
      case 'result':
        this.#result = output.text
        return
      case 'failure':
        this.#failure = output.message
        return
      default:
        this.hasOutput ||= output.type !== 'activity' || output.kind === 'tool'
        if (output.type === 'message') this.#lastMessage = output.text
        this.parts.outbox.push(output)
    }
  }

  room(): Promise<void> {
    return this.parts.outbox.room()
  }

  async permission(request: JsonObject, signal: AbortSignal): Promise<PermissionAnswer> {
    this.hasOutput = true
    if (isFree(asText(request['tool_name']), this.parts.context.clientTools())) {
      return { behavior: 'allow', updatedInput: asObject(request['input']) }
    }
    return request['tool_name'] === 'AskUserQuestion'
      ? this.#askQuestions(request, signal)
      : this.#askPermission(request, signal)
  }

  async callTool(name: string, input: JsonObject, signal: AbortSignal): Promise<ToolResult> {
    this.hasOutput = true
    const { context, settings } = this.parts
    if (JSON.stringify(input).length > INPUT_CHARS_MAX) return failed('The arguments are too long.')
    const kind = toolKind(name)
    const detail = { tool: name, kind: 'other', input } as const
    const ask = askFor(context, settings)
    return toolResult(await ask({ kind, question: `Call ${name}`, detail, signal }), context)
  }

  /** Throws if the turn has failed. */
  async end(): Promise<void> {
    if (this.#failure !== null) throw new Error(this.#failure)
    // The output of a slash command is the result alone.
    const isRepeated = this.#result === this.#lastMessage || this.#result === ''
    if (this.#result !== null && !isRepeated) {
      this.parts.outbox.push({ type: 'message', text: this.#result })
    }
  }

  /** A session has one transcript: an answer from another one (after `/clear`) is a failure. */
  #checkSession(id: string): void {
    const { backend } = this.parts.start
    if (id === backend) return
    this.#failure = `it continued another session (${id}) instead of ${backend}`
    this.#agent?.kill(this.#failure)
  }

  /** A fork begins after this message, and works in the same folder. */
  #recordPosition(message: string): void {
    const { keep, places } = this.parts
    keep({ message, cwd: places.cwd })
  }

  /** The agent left plan mode, or a person allowed it to edit files from now on. */
  #recordMode(mode: string): void {
    // The turn is over, or the hold is lost: the next turn has the mode of its settings.
    this.parts.context.configure({ mode }).catch(() => undefined)
  }

  async #askPermission(request: JsonObject, signal: AbortSignal): Promise<PermissionAnswer> {
    const { context, settings, places } = this.parts
    const { directories } = await allowedBefore(context, settings, places)
    const shown = { ...places, directories: [...places.directories, ...directories] }
    const detail = await detailOf(request, shown)
    const suggested = await suggestionsOf(request, settings, places)
    const question = permissionQuestion(request, detail, suggested)
    const outcome = await askFor(context, settings)({ ...question, signal })
    return permissionAnswer(outcome, request, { suggested, context })
  }

  /** All its questions at once: the first that is not answered withdraws the others. */
  async #askQuestions(request: JsonObject, signal: AbortSignal): Promise<PermissionAnswer> {
    const { context, settings } = this.parts
    const others = new AbortController()
    const ask = async (question: Question): Promise<AskOutcome> => {
      const both = AbortSignal.any([signal, others.signal])
      const outcome = await askFor(context, settings)({ ...question, signal: both })
      if (outcome.outcome !== 'answered') others.abort()
      return outcome
    }
    const outcomes = await Promise.all(questionsOf(request).map(ask))
    const missing = outcomes
      .filter((one) => one.outcome !== 'answered')
      .toSorted((one) => (one.outcome === 'withdrawn' ? 1 : -1))
    if (missing[0] !== undefined) return unanswered(missing[0], context)
    const answers = outcomes.flatMap((one) =>
      one.outcome === 'answered' ? [chosen(one.answer)] : [],
    )
    return questionsAnswer(request, answers)
  }
}

function commandOf({ name, description, argumentHint: hint }: JsonObject) {
  return {
    name: asText(name),
    description: asText(description).slice(0, DESCRIPTION_CHARS_MAX).toWellFormed(),
    ...(asText(hint) === '' ? {} : { hint: asText(hint) }),
  }
}
