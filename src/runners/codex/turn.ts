/** One turn of Codex: its notifications become outputs of the turn, its requests asks. */
import type { Grant, Question, RunnerContext } from '../../core/index.ts'
import { askFor, isGranted, type AskSettings } from '../asking.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { activity, type Outbox } from '../outbox.ts'
import { present, ToolCalls } from '../tools.ts'
import { respond } from './approvals.ts'
import { toolCallOf } from './items.ts'

type TurnRunParts = {
  readonly context: RunnerContext
  readonly outbox: Outbox
  readonly settings: AskSettings
  readonly thread: string
  /** Gives the running turn a message of its user. */
  readonly say: (text: string) => void
}

/** The tokens that a turn has used, and the size of its context. */
type Tokens = {
  inputTokens: number
  outputTokens: number
  cachedTokens: number
  contextUsed?: number
  contextSize?: number
}

const PLAN_STATUS: Readonly<Record<string, string>> = { inProgress: 'in_progress' }

export class TurnRun {
  /** Codex's id of the turn, once it has accepted it. */
  id: string | null = null
  /** Resolves at the end of the turn; rejects if it has failed. */
  readonly ended: Promise<void>
  readonly #parts: TurnRunParts
  readonly #tools = new ToolCalls()
  /** The items that clients were asked about. */
  readonly #asked = new Set<unknown>()
  /** Why no person has answered, once Codex was told. */
  #said: string | null = null
  #tokens: Tokens | null = null
  #binding: Promise<void> | null = null
  #succeed: () => void = () => undefined
  #fail: (error: Error) => void = () => undefined

  constructor(parts: TurnRunParts) {
    this.#parts = parts
    this.ended = new Promise((resolve, reject) => {
      this.#succeed = resolve
      this.#fail = reject
    })
    // The agent awaits it, if the turn is accepted.
    this.ended.catch(() => undefined)
  }

  fail(error: Error): void {
    this.#fail(error)
  }

  /** Resolves when the turn can accept more output. */
  room(): Promise<void> {
    return this.#parts.outbox.room()
  }

  /** What is about another turn of the thread is dropped: it came late. */
  notification(method: string, params: JsonObject): void {
    const turn = params['turnId'] ?? asObject(params['turn'])['id']
    if (turn !== undefined && turn !== null && turn !== this.id) return
    NOTIFICATIONS[method]?.call(this, params)
  }

  request(method: string, params: JsonObject): Promise<unknown> {
    const { context, settings, say } = this.#parts
    this.bind()
    this.#asked.add(params['itemId'])
    const ask = askFor(context, settings, (...unanswered) => this.#unanswered(...unanswered))
    const isAllowed = (grant: Grant): boolean => this.#isAllowed(grant)
    return respond(method, params, { ask, say, isAllowed, tool: (id) => this.#tools.get(id) })
  }

  #isAllowed(grant: Grant): boolean {
    const isAllowed = isGranted(this.#parts.context, grant)
    if (isAllowed) this.record('permission_allowed', [{ tool: grant.label }])
    return isAllowed
  }

  /** The answer of Codex's protocol is a refusal without words: they follow as a message. */
  #unanswered(reason: string, { question }: Question): void {
    this.record('permission_denied', [{ tool: question, reason }])
    if (this.#said !== reason) this.#parts.say(reason)
    this.#said = reason
  }

  /** Binds the thread once Codex works in it: before that it may not be stored. */
  bind(): void {
    const { context, thread } = this.#parts
    if (this.#binding !== null) return
    const isNew = context.session.backend === null
    this.#binding = isNew ? context.bind(thread) : Promise.resolve()
    // `complete` awaits it; this prevents an unhandled rejection until then.
    this.#binding.catch(() => undefined)
  }

  say(text: string): void {
    this.bind()
    this.#parts.outbox.push({ type: 'delta', text })
  }

  item(item: JsonObject, isCompleted: boolean): void {
    const { type, text, summary, content } = item
    if (type !== 'userMessage') this.bind()
    const call = toolCallOf(item, isCompleted)
    if (call !== null) {
      for (const output of this.#tools.update(call)) this.#parts.outbox.push(output)
      if (item['status'] === 'declined' && !this.#asked.has(call.id)) this.#denied(call)
      return
    }
    if (!isCompleted) return
    if (type === 'agentMessage' || type === 'plan') this.#message(asText(text))
    else if (type === 'reasoning') this.#thought([...asList(summary), ...asList(content)])
    else if (type === 'contextCompaction') this.record('notice', { title: 'context compacted' })
  }

  plan(steps: unknown): void {
    const entries = asList(steps).map((one) => {
      const { step, status } = asObject(one)
      return { content: asText(step), status: PLAN_STATUS[asText(status)] ?? status }
    })
    this.record('plan', { entries })
  }

  /** Each report is about one request to the model. */
  usage({ last, modelContextWindow: size }: JsonObject): void {
    const { inputTokens, outputTokens, cachedInputTokens, totalTokens } = asObject(last)
    const before = this.#tokens ?? { inputTokens: 0, outputTokens: 0, cachedTokens: 0 }
    this.#tokens = {
      inputTokens: before.inputTokens + Number(inputTokens ?? 0),
      outputTokens: before.outputTokens + Number(outputTokens ?? 0),
      cachedTokens: before.cachedTokens + Number(cachedInputTokens ?? 0),
      ...present({ contextUsed: totalTokens, contextSize: size }),
    }
  }

  record(kind: string, data: object): void {
    this.#parts.outbox.push(activity(kind, data))
  }

  complete({ status, error }: JsonObject): void {
    this.bind()
    if (this.#tokens !== null) this.record('usage', this.#tokens)
    const { message, additionalDetails } = asObject(error)
    const words = [message, additionalDetails].map(asText).filter((one) => one !== '')
    if (status === 'failed') return this.fail(new Error(words.join(': ') || 'the turn has failed'))
    const isOwn = this.#parts.context.signal.aborted
    if (status === 'interrupted' && !isOwn) {
      return this.fail(new Error('the agent interrupted the turn by itself'))
    }
    void this.#binding?.then(this.#succeed, this.#fail)
  }

  #message(text: string): void {
    if (text !== '') this.#parts.outbox.push({ type: 'message', text })
  }

  #thought(parts: readonly unknown[]): void {
    const text = parts.map(asText).join('\n').trim()
    if (text !== '') this.record('thought', { text })
  }

  #denied({ id, title, input }: { id: string; title?: string; input?: unknown }): void {
    this.record('permission_denied', [present({ id, tool: title, input })])
  }
}

/** What is done with each notification of a turn; others are not part of its output. */
const NOTIFICATIONS: Readonly<Record<string, (this: TurnRun, params: JsonObject) => void>> = {
  'item/agentMessage/delta'({ delta }) {
    this.say(asText(delta))
  },
  'item/plan/delta'({ delta }) {
    this.say(asText(delta))
  },
  'item/started'({ item }) {
    this.item(asObject(item), false)
  },
  'item/completed'({ item }) {
    this.item(asObject(item), true)
  },
  'turn/plan/updated'({ plan }) {
    this.plan(plan)
  },
  'thread/tokenUsage/updated'({ tokenUsage }) {
    this.usage(asObject(tokenUsage))
  },
  'item/autoApprovalReview/completed'({ review, action }) {
    const { status, rationale } = asObject(review)
    if (status !== 'denied') return
    this.record('permission_denied', [present({ input: action, reason: rationale })])
  },
  error({ error, willRetry }) {
    const { message } = asObject(error)
    if (willRetry === true) this.record('notice', { severity: 'warning', title: message })
  },
  'turn/completed'({ turn }) {
    this.complete(asObject(turn))
  },
}
