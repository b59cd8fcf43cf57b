/** One turn as the conversation shows it: its events, folded. */
import type { Input, Part, SessionEvent } from '../../../client/index.ts'
import { turnOutcome, type TurnOutcome } from '../../../wire/answer-text.ts'
import { foldToolCall, type ToolCall } from '../../../wire/tool-calls.ts'
import { principalText } from '../../../wire/views.ts'

type AskOpened = Extract<SessionEvent, { type: 'ask.opened' }>
type AskSettled = Extract<SessionEvent, { type: 'ask.settled' }>
type ActivityEvent = Extract<SessionEvent, { type: 'turn.activity' }>

export type TurnEntry =
  | {
      readonly type: 'input'
      readonly how: 'asked' | 'joined' | 'steering' | 'steered'
      readonly text: string
      readonly parts: readonly Part[]
      readonly at: number
      readonly seq: number
      readonly by: string | null
    }
  | { readonly type: 'message'; text: string; isPartial: boolean; at: number; seq: number }
  | { readonly type: 'tool'; call: ToolCall; readonly startedAt: number; endedAt: number | null }
  | { readonly type: 'thought'; text: string; readonly seq: number }
  | { readonly type: 'plan'; entries: readonly PlanEntry[]; readonly seq: number }
  | { readonly type: 'ask'; readonly opened: AskOpened; settled: AskSettled | null }
  | { readonly type: 'content'; readonly data: unknown; readonly seq: number }
  | { readonly type: 'note'; readonly text: string; readonly seq: number }

export type PlanEntry = { readonly content: string; readonly status: string }

export type TurnUsage = {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly costUsd: number
}

export type TurnState = TurnOutcome['state'] | 'queued' | 'running'

export type TurnView = {
  readonly id: string
  readonly state: TurnState
  /** Why it ended so; '': it is done, or has not ended. */
  readonly why: string
  readonly entries: readonly TurnEntry[]
  readonly queuedAt: number | null
  readonly startedAt: number | null
  /** Where in the log it started: turns ran in this order. */
  readonly startedSeq: number | null
  readonly endedAt: number | null
  readonly usage: TurnUsage | null
  readonly input: Input | null
}

type ToolEntry = Extract<TurnEntry, { type: 'tool' }>

type Folding = { -readonly [Field in keyof TurnView]: TurnView[Field] } & {
  entries: TurnEntry[]
  readonly calls: Map<string, ToolCall>
  readonly tools: Map<string, ToolEntry>
}

/** The events of a turn, in order, as they come; the first ones may not be known. */
export class TurnFold {
  readonly #turn: Folding

  constructor(id: string) {
    this.#turn = {
      ...{ id, state: 'running', why: '', entries: [], usage: null, input: null },
      ...{ queuedAt: null, startedAt: null, startedSeq: null, endedAt: null },
      ...{ calls: new Map(), tools: new Map() },
    }
  }

  /** The turn after these too. */
  add(events: readonly SessionEvent[]): TurnView {
    for (const event of events) fold(this.#turn, event)
    const { calls: _calls, tools: _tools, entries, ...view } = this.#turn
    return { ...view, entries: [...entries] }
  }
}

function fold(turn: Folding, event: SessionEvent): void {
  switch (event.type) {
    case 'turn.queued':
      turn.state = 'queued'
      turn.queuedAt = event.queuedAt ?? event.at
      return ask(turn, event)
    case 'turn.started':
      turn.state = 'running'
      turn.queuedAt ??= event.queuedAt ?? null
      turn.startedAt = event.at
      turn.startedSeq = event.seq
      return ask(turn, event)
    case 'turn.joined':
      return void turn.entries.push(inputEntry(event, 'joined'))
    case 'turn.steering':
      return void turn.entries.push(inputEntry(event, 'steering'))
    case 'turn.steered': {
      const at = turn.entries.findIndex(
        (entry) => entry.type === 'input' && entry.seq === event.steering,
      )
      const entry = inputEntry(event, 'steered')
      if (at === -1) turn.entries.push(entry)
      else turn.entries[at] = entry
      return
    }
    case 'message.added': {
      const { text, partial, at, seq } = event
      turn.entries.push({ type: 'message', text, isPartial: partial === true, at, seq })
      return
    }
    case 'turn.activity':
      return activity(turn, event)
    case 'ask.opened':
      return void turn.entries.push({ type: 'ask', opened: event, settled: null })
    case 'ask.settled': {
      const asked = turn.entries.find(
        (entry) => entry.type === 'ask' && entry.opened.ask === event.ask,
      )
      if (asked?.type === 'ask') asked.settled = event
      return
    }
    default:
      return end(turn, event)
  }
}

type InputEvent = Extract<SessionEvent, { input: Input }>

/** What waited is told again when it starts, with all that was collected in it. */
function ask(turn: Folding, event: InputEvent): void {
  turn.input = event.input
  const rest = turn.entries.filter((entry) => entry.type !== 'input')
  turn.entries = [inputEntry(event, 'asked'), ...rest]
}

function inputEntry(
  event: InputEvent,
  how: 'asked' | 'joined' | 'steering' | 'steered',
): TurnEntry {
  const { input, at, seq } = event
  const isText = typeof input === 'string'
  const parts = !isText && Array.isArray(input.parts) ? (input.parts as readonly Part[]) : []
  const text = isText ? input : input.text
  return { type: 'input', how, text, parts, at, seq, by: principalText(event.by) }
}

function end(turn: Folding, event: SessionEvent): void {
  const outcome = turnOutcome(event)
  if (outcome === null) return
  const { state, error, reason } = outcome
  turn.state = state
  turn.endedAt = event.at
  const why = state === 'expired' ? 'it waited too long' : (error?.message ?? reason)
  turn.why = why === null ? '' : `${state}: ${why}`
}

function activity(turn: Folding, event: ActivityEvent): void {
  const { kind, data, seq, at } = event
  const call = foldToolCall(turn.calls, event)
  if (call !== null) return toolCall(turn, call, at)
  const fields = (typeof data === 'object' && data !== null ? data : {}) as Record<string, unknown>
  const last = turn.entries.at(-1)
  switch (kind) {
    case 'thought': {
      const text = textOf(fields['text'] ?? '')
      if (last?.type === 'thought') last.text += `\n\n${text}`
      else turn.entries.push({ type: 'thought', text, seq })
      return
    }
    case 'plan':
      return plan(turn, fields['entries'], seq)
    case 'usage':
      turn.usage = addUsage(turn.usage, fields)
      return
    case 'content':
      return void turn.entries.push({ type: 'content', data, seq })
    default: {
      const text = noteText(kind, fields)
      if (text !== null) turn.entries.push({ type: 'note', text, seq })
    }
  }
}

function toolCall(turn: Folding, call: ToolCall, at: number): void {
  const isOver = call.status === 'done' || call.status === 'failed'
  const known = turn.tools.get(call.id)
  if (known !== undefined) {
    known.call = call
    if (isOver) known.endedAt ??= at
    return
  }
  const entry: ToolEntry = { type: 'tool', call, startedAt: at, endedAt: isOver ? at : null }
  turn.tools.set(call.id, entry)
  turn.entries.push(entry)
}

/** Each update has the whole plan: it replaces the one before. */
function plan(turn: Folding, list: unknown, seq: number): void {
  const entries = (Array.isArray(list) ? list : []).map((entry: unknown) => {
    const { content, status } = (entry ?? {}) as Record<string, unknown>
    return { content: textOf(content ?? ''), status: textOf(status ?? 'pending') }
  })
  const known = turn.entries.find((entry) => entry.type === 'plan')
  if (known?.type === 'plan') known.entries = entries
  else turn.entries.push({ type: 'plan', entries, seq })
}

function addUsage(known: TurnUsage | null, fields: Record<string, unknown>): TurnUsage {
  const sum = (name: keyof TurnUsage): number => {
    const value = fields[name]
    return (known?.[name] ?? 0) + (typeof value === 'number' ? value : 0)
  }
  return {
    inputTokens: sum('inputTokens'),
    outputTokens: sum('outputTokens'),
    costUsd: sum('costUsd'),
  }
}

/** Of activities that are no output: what a reader should know of them. */
function noteText(kind: string, fields: Record<string, unknown>): string | null {
  switch (kind) {
    case 'conversation_changed':
      return elsewhere(fields['messages'])
    case 'notice':
      return [fields['title'], fields['description']].filter(Boolean).join(': ')
    case 'diagnosis':
    case 'waiting':
    case 'stop':
      return `${kind}: ${textOf(fields['message'] ?? fields['reason'] ?? fields)}`
    case 'context_lost':
      return 'The agent has lost the earlier conversation.'
    case 'permission_denied':
    case 'permission_allowed':
      return `${kind.replace('_', ' ')}: ${textOf(fields)}`
    case 'activities_dropped':
      return 'The turn had more activities than are recorded.'
    default:
      return null
  }
}

/** What was said in the agent's own program. */
function elsewhere(messages: unknown): string {
  const list = (Array.isArray(messages) ? messages : []) as { role: string; text: string }[]
  const lines = list.map(({ role, text }) => `${role}: ${text}`)
  return ["In the agent's own program meanwhile:", ...lines].join('\n')
}

export const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? '')

/** How an ask ended, in words. */
export function outcomeText(settled: AskSettled): string {
  if (settled.outcome === 'answered') return textOf(settled.answer)
  return settled.outcome.replaceAll('_', ' ')
}
