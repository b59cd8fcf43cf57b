/** The events of a session as a conversation on a screen. */
import type { Delta, SessionInfo } from '../client/index.ts'
import type { EarlierMessage, Input, SessionEvent, Settings, ToolCall } from '../core/index.ts'
import type { SettingsChange } from '../wire/frames.ts'
import { AnswerText, turnOutcome, type TurnOutcome } from '../wire/answer-text.ts'
import { foldToolCall } from '../wire/tool-calls.ts'
import { linesOf } from './output.ts'
import type { Screen } from './screen.ts'
import { toolLine } from './tool-line.ts'

/** So many messages from elsewhere are shown, the newest. */
const ELSEWHERE_MAX = 20

export class ConversationPrinter {
  readonly #screen: Screen
  readonly #answers = new Map<string, AnswerText>()
  readonly #calls = new Map<string, Map<string, ToolCall>>()
  /** The last line of each tool call: shown again only when it has changed. */
  readonly #toolLines = new Map<string, string>()
  /** What was typed here and is not in the log yet. */
  #sent: string[] = []
  #commands: ReadonlySet<string> = new Set()
  /** Set while what has been is shown: only the ends of tool calls, and how turns have ended. */
  #isPast = false
  /** The questions of past asks. */
  readonly #questions = new Map<string, string>()
  settings: Settings = {}

  constructor(screen: Screen) {
    this.#screen = screen
  }

  /** What the welcome tells of the session. */
  learn(info: SessionInfo | null): void {
    this.settings = info?.settings ?? {}
    this.#commands = namesIn(info)
  }

  /** A change that is confirmed, perhaps before its event; null takes a setting back. */
  configured(change: SettingsChange): void {
    const entries = Object.entries({ ...this.settings, ...change })
    this.settings = Object.fromEntries(entries.filter(([, value]) => value !== null))
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

  /** Shows events of the past. */
  past(events: readonly SessionEvent[]): void {
    this.#isPast = true
    for (const event of events) this.event(event)
    this.#screen.finishLine()
    this.#isPast = false
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
      case 'session.created':
        return this.#isPast ? this.#elsewhere(event.origin?.messages ?? []) : undefined
      case 'ask.opened':
        return void (this.#isPast && this.#questions.set(event.ask, event.question))
      case 'ask.settled':
        return this.#isPast ? this.#settled(event) : undefined
      default:
        return this.#ended(event)
    }
  }

  /** What another client has said. */
  #input(input: Input): void {
    const text = typeof input === 'string' ? input : (input.text ?? '')
    const index = this.#sent.indexOf(text)
    if (index >= 0) this.#sent.splice(index, 1)
    else this.#screen.say(prefixed('| ', text))
  }

  /** What was said without Holdfast. */
  #elsewhere(messages: readonly EarlierMessage[]): void {
    for (const { role, text } of messages.slice(-ELSEWHERE_MAX)) {
      this.#screen.say(role === 'user' ? prefixed('| ', text) : linesOf(text).join('\n'))
    }
  }

  #settled(event: SessionEvent & { readonly type: 'ask.settled' }): void {
    const question = this.#questions.get(event.ask)
    if (question === undefined) return
    const answer = event.outcome === 'answered' ? JSON.stringify(event.answer) : event.outcome
    this.#screen.say(prefixed('? ', `${question} ${answer.replaceAll('_', ' ')}`))
  }

  #ended(event: SessionEvent): void {
    const outcome = turnOutcome(event)
    if (outcome === null || !('turn' in event)) return
    this.#forget(event.turn)
    if (!this.#isPast) return
    this.#screen.finishLine()
    const words = outcomeWords(outcome)
    if (words !== null) this.#screen.say(prefixed('', `(${words})`))
  }

  #activity(event: SessionEvent & { readonly type: 'turn.activity' }): void {
    if (event.kind === 'commands') this.#commands = namesIn(event.data)
    if (event.kind === 'conversation_changed') {
      const { messages } = event.data as { readonly messages?: readonly EarlierMessage[] }
      this.#screen.say("(in the agent's own program meanwhile:)")
      return this.#elsewhere(messages ?? [])
    }
    const calls = this.#calls.get(event.turn) ?? new Map<string, ToolCall>()
    this.#calls.set(event.turn, calls)
    const call = foldToolCall(calls, event)
    if (call === null) return
    if (this.#isPast && (call.status === 'running' || call.status === 'pending')) return
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

function prefixed(prefix: string, text: string): string {
  return linesOf(text)
    .map((line) => `${prefix}${line}`)
    .join('\n')
}

/** How a turn has ended; null: well. */
export function outcomeWords({ state, error, reason }: TurnOutcome): string | null {
  if (state === 'done') return null
  if (error !== null) return `the turn failed: ${error.code}: ${error.message}`
  return `the turn was ${state}${reason === null || reason === state ? '' : `: ${reason}`}`
}
