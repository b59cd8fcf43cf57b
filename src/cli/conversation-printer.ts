/** The events of a session as a conversation on a screen. */
import type { Delta, SessionInfo } from '../client/index.ts'
import type { Input, SessionEvent, Settings, ToolCall } from '../core/index.ts'
import { AnswerText, turnOutcome } from '../wire/answer-text.ts'
import { foldToolCall } from '../wire/tool-calls.ts'
import { linesOf } from './output.ts'
import type { Screen } from './screen.ts'
import { toolLine } from './tool-line.ts'

export class ConversationPrinter {
  readonly #screen: Screen
  readonly #answers = new Map<string, AnswerText>()
  readonly #calls = new Map<string, Map<string, ToolCall>>()
  /** The last line of each tool call: shown again only when it has changed. */
  readonly #toolLines = new Map<string, string>()
  /** What was typed here and is not in the log yet. */
  #sent: string[] = []
  #commands: ReadonlySet<string> = new Set()
  settings: Settings = {}

  constructor(screen: Screen) {
    this.#screen = screen
  }

  /** What the welcome tells of the session. */
  learn(info: SessionInfo | null): void {
    this.settings = info?.settings ?? {}
    this.#commands = namesIn(info)
  }

  /** Whether it is a slash command of the agent. */
  hasCommand(name: string): boolean {
    return this.#commands.has(name)
  }

  sent(text: string): void {
    this.#sent.push(text)
  }

  unsent(text: string): void {
    const index = this.#sent.indexOf(text)
    if (index >= 0) this.#sent.splice(index, 1)
  }

  delta({ turn, text }: Delta): void {
    this.#screen.write(this.#answerOf(turn).delta(text))
  }

  event(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.started':
      case 'turn.joined':
      case 'turn.steered':
        return this.#input(event.input)
      case 'message.added':
        return this.#screen.write(this.#answerOf(event.turn).message(event.text))
      case 'turn.activity':
        return this.#activity(event)
      case 'session.configured':
        this.settings = event.settings
        return this.#screen.say(`(settings: ${linesOf(JSON.stringify(event.settings)).join(' ')})`)
      default:
        if (turnOutcome(event) !== null && 'turn' in event) this.#forget(event.turn)
    }
  }

  /** What another client has said. */
  #input(input: Input): void {
    const text = typeof input === 'string' ? input : (input.text ?? '')
    const index = this.#sent.indexOf(text)
    if (index >= 0) this.#sent.splice(index, 1)
    else
      this.#screen.say(
        linesOf(text)
          .map((line) => `| ${line}`)
          .join('\n'),
      )
  }

  #activity(event: SessionEvent & { readonly type: 'turn.activity' }): void {
    if (event.kind === 'commands') this.#commands = namesIn(event.data)
    const calls = this.#calls.get(event.turn) ?? new Map<string, ToolCall>()
    this.#calls.set(event.turn, calls)
    const call = foldToolCall(calls, event)
    if (call === null) return
    const [name, line] = [`${event.turn} ${call.id}`, toolLine(call)]
    if (this.#toolLines.get(name) === line) return
    this.#toolLines.set(name, line)
    this.#screen.say(line)
  }

  #answerOf(turn: string): AnswerText {
    const answer = this.#answers.get(turn) ?? new AnswerText()
    this.#answers.set(turn, answer)
    return answer
  }

  #forget(turn: string): void {
    for (const id of this.#calls.get(turn)?.keys() ?? []) this.#toolLines.delete(`${turn} ${id}`)
    this.#calls.delete(turn)
    this.#answers.delete(turn)
  }
}

function namesIn(data: unknown): ReadonlySet<string> {
  const { commands } = (data ?? {}) as { readonly commands?: unknown }
  if (!Array.isArray(commands)) return new Set()
  return new Set(commands.map((command: { readonly name?: string } | null) => command?.name ?? ''))
}
