/**
 * The events of a log as events of the Copilot SDK. The same event of the log always has the same
 * ids, so that a client which comes back, or reads the history, knows what it has seen already.
 *
 * What tells a client that its own message is answered (`session.idle`, `session.error`) is not
 * made here but per connection (`own-turns.ts`).
 */
import { createHash, randomUUID } from 'node:crypto'
import {
  openedAsk,
  type Ask,
  type Delta,
  type EventOf,
  type Input,
  type Session,
  type SessionEvent,
  type Settings,
  type ToolCall,
} from '../../core/index.ts'
import { foldToolCall } from '../../wire/tool-calls.ts'
import { toolTitle } from '../../wire/tool-title.ts'
import { VERSION } from '../../wire/version.ts'
import { askSettled, requestEvent } from './asks.ts'
import { COPILOT_EVENTS, type CopilotEventType } from './event-table.ts'

export type CopilotEvent = {
  readonly id: string
  readonly timestamp: string
  readonly parentId: string | null
  readonly ephemeral?: true
  readonly type: CopilotEventType
  readonly data: object
}

type Drafted = readonly [type: CopilotEventType, data: object]

/** What is known of the turn that runs. */
type RunningTurn = {
  readonly id: string
  readonly tools: Map<string, ToolCall>
  /** How many messages it has said, and whether it has said something since the last of them. */
  messages: number
  deltas: number
}

/** An id of the form that the SDK documents, which follows from a name. */
export function eventId(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex')
  const [head, version, variant] = [hex.slice(0, 12), hex.slice(13, 16), hex.slice(17, 20)]
  const tail = hex.slice(20, 32)
  return `${head.slice(0, 8)}-${head.slice(8)}-4${version}-a${variant}-${tail}`
}

/** Reads the events of one log in their order. */
export class EventTranslator {
  /** As clients call the session. */
  readonly #name: string
  readonly #session: string
  #settings: Settings
  readonly #asks = new Map<string, Ask>()
  #turn: RunningTurn | null = null
  #lastId: string | null = null

  /** `state`: of the session where the reading begins; null: at the beginning of its log. */
  constructor(session: string, name: string, state: Pick<Session, 'settings' | 'asks'> | null) {
    this.#session = session
    this.#name = name
    this.#settings = state?.settings ?? {}
    for (const ask of state?.asks ?? []) this.#asks.set(ask.id, ask)
  }

  take(event: SessionEvent): readonly CopilotEvent[] {
    const drafts = this.#drafts(event)
    return drafts.map((draft, index) => this.#event(draft, `${event.seq}.${index}`, event.at))
  }

  delta({ turn, n, text }: Delta, at: number): CopilotEvent {
    const known = this.#running(turn)
    known.deltas += 1
    const data = { messageId: messageId(known), deltaContent: text }
    return this.#event(['assistant.message_delta', data], `${turn}.${n}`, at)
  }

  /** An event that is not in the log. */
  made(type: CopilotEventType, data: object, at: number): CopilotEvent {
    return this.#event([type, data], randomUUID(), at)
  }

  /** The requests that wait, for a client that has come now: as they were told before. */
  waiting(at: number): readonly CopilotEvent[] {
    return [...this.#asks.values()].flatMap((ask) => {
      const event = requestEvent(ask, this.#name)
      return event === null ? [] : [this.#event(event, `${ask.id.slice(1)}.0`, at)]
    })
  }

  /** An ask that waits. */
  ask(id: string): Ask | undefined {
    return this.#asks.get(id)
  }

  #event([type, data]: Drafted, place: string, at: number): CopilotEvent {
    const id = eventId(`${this.#session}/${place}/${type}`)
    const parentId = this.#lastId
    const { isEphemeral } = COPILOT_EVENTS[type]
    // The chain is of what is in the history.
    if (!isEphemeral) this.#lastId = id
    const timestamp = new Date(at).toISOString()
    return { id, timestamp, parentId, ...(isEphemeral ? { ephemeral: true } : {}), type, data }
  }

  #running(id: string): RunningTurn {
    if (this.#turn?.id === id) return this.#turn
    this.#turn = { id, tools: new Map(), messages: 0, deltas: 0 }
    return this.#turn
  }

  #drafts(event: SessionEvent): readonly Drafted[] {
    switch (event.type) {
      case 'session.created':
        return [['session.start', this.#start(event)]]
      case 'session.configured':
        return this.#configured(event.settings)
      case 'session.closed':
        return [['session.shutdown', shutdown(event.at)]]
      case 'turn.queued':
      case 'turn.joined':
        return [['pending_messages.modified', {}]]
      case 'turn.started':
        this.#running(event.turn)
        return [
          ['user.message', { content: textOf(event.input), messageId: event.turn }],
          ['assistant.turn_start', { turnId: event.turn }],
        ]
      case 'turn.steered': {
        const { turn: messageId, input } = event
        return [['user.message', { content: textOf(input), messageId, delivery: 'steering' }]]
      }
      case 'message.added':
        return [this.#message(event.turn, event.text)]
      case 'turn.activity':
        return this.#activity(event)
      case 'ask.opened':
        return this.#asked(openedAsk(event))
      case 'ask.settled':
        return this.#settled(event)
      case 'turn.done':
      case 'turn.failed':
      case 'turn.cancelled':
      case 'turn.interrupted':
      case 'turn.expired':
        return this.#ended(event)
      default:
        return []
    }
  }

  #asked(ask: Ask): readonly Drafted[] {
    this.#asks.set(ask.id, ask)
    const event = requestEvent(ask, this.#name)
    return event === null ? [] : [event]
  }

  #settled(event: EventOf<'ask.settled'>): readonly Drafted[] {
    const ask = this.#asks.get(event.ask)
    this.#asks.delete(event.ask)
    return ask === undefined ? [] : askSettled(event, ask)
  }

  #start({ at, settings = {} }: EventOf<'session.created'>): object {
    this.#settings = settings
    const about = { version: 1, producer: 'holdfast', copilotVersion: VERSION }
    const startTime = new Date(at).toISOString()
    const { model, cwd } = settings
    return {
      ...{ sessionId: this.#name, ...about, startTime },
      ...(model === undefined ? {} : { selectedModel: model }),
      ...(cwd === undefined ? {} : { context: { cwd } }),
    }
  }

  #configured(settings: Settings): readonly Drafted[] {
    const { model: before, mode: modeBefore } = this.#settings
    this.#settings = settings
    const { model, mode } = settings
    const drafts: Drafted[] = []
    if (model !== undefined && model !== before) {
      const previous = before === undefined ? {} : { previousModel: before }
      drafts.push(['session.model_change', { newModel: model, ...previous }])
    }
    if (mode !== modeBefore) {
      const modes = { newMode: mode ?? 'interactive', previousMode: modeBefore ?? 'interactive' }
      drafts.push(['session.mode_changed', modes])
    }
    return drafts
  }

  #message(turn: string, text: string): Drafted {
    const known = this.#running(turn)
    const data = { messageId: messageId(known), content: text, turnId: turn }
    known.messages += 1
    known.deltas = 0
    return ['assistant.message', data]
  }

  #activity(event: EventOf<'turn.activity'>): readonly Drafted[] {
    const { tools } = this.#running(event.turn)
    const before = tools.get(toolIdOf(event.data))
    const call = foldToolCall(tools, event)
    if (call !== null) return toolEvents(call, before)
    const { kind, data } = event
    const { text } = (data ?? {}) as { readonly text?: unknown }
    if (kind !== 'thought' || typeof text !== 'string') return []
    return [['assistant.reasoning', { reasoningId: `${event.turn}.${event.seq}`, content: text }]]
  }

  /** Every turn that ends well, or is stopped, has said something, if need be nothing. */
  #ended({ turn, type }: SessionEvent & { readonly turn: string }): readonly Drafted[] {
    const known = this.#turn?.id === turn ? this.#turn : null
    // One that has only waited leaves the turn that runs as it is.
    if (known !== null) this.#turn = null
    const isReply = type === 'turn.done' || type === 'turn.cancelled'
    const isSilent = isReply && (known?.messages ?? 0) === 0
    const silence = { messageId: `${turn}.0`, content: '', turnId: turn }
    return [
      ...(isSilent ? [['assistant.message', silence] as const] : []),
      ...(type === 'turn.cancelled' ? [['abort', { reason: 'user_initiated' }] as const] : []),
      ...(known === null ? [] : [['assistant.turn_end', { turnId: turn }] as const]),
    ]
  }
}

function messageId({ id, messages }: RunningTurn): string {
  return `${id}.${messages}`
}

function textOf(input: Input): string {
  return typeof input === 'string' ? input : input.text
}

function toolIdOf(data: unknown): string {
  const { id } = (data ?? {}) as { readonly id?: unknown }
  return typeof id === 'string' ? id : ''
}

function toolEvents(call: ToolCall, before: ToolCall | undefined): readonly Drafted[] {
  const { id: toolCallId, status, output } = call
  const started: Drafted[] = before === undefined ? [['tool.execution_start', toolStart(call)]] : []
  if (!isOver(call) || (before !== undefined && isOver(before))) return started
  const content = typeof output === 'string' ? output : (JSON.stringify(output) ?? '')
  const result =
    status === 'done' ? { result: { content } } : { error: { message: content || 'it failed' } }
  const data = { toolCallId, success: status === 'done', ...result }
  return [...started, ['tool.execution_complete', data]]
}

function isOver({ status }: ToolCall): boolean {
  return status === 'done' || status === 'failed'
}

function toolStart(call: ToolCall): object {
  const { id: toolCallId, name, input, parent } = call
  return {
    toolCallId,
    toolName: name ?? toolTitle(call),
    ...(input === undefined ? {} : { arguments: input }),
    ...(parent === undefined ? {} : { parentToolCallId: parent }),
  }
}

/** The SDK's totals are of GitHub's service, which this server does not ask. */
function shutdown(at: number): object {
  return {
    shutdownType: 'routine',
    totalPremiumRequests: 0,
    totalApiDurationMs: 0,
    sessionStartTime: at,
    codeChanges: { linesAdded: 0, linesRemoved: 0, filesModified: [] },
    modelMetrics: {},
  }
}
