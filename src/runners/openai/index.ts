/**
 * The runner for models behind an OpenAI-compatible API. The upstream has no memory: each request
 * contains the conversation so far, from the log.
 */
import {
  invalid,
  type Message,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerTurn,
} from '../../core/index.ts'
import { asList, asObject, asText, type JsonObject } from '../json.ts'
import { activity } from '../outbox.ts'
import { withDefaults } from '../program-options.ts'
import { OpenAiAgent, type OpenAiOptions, type OpenAiSettings } from './options.ts'
import { Upstream } from './upstream.ts'

export type { OpenAiOptions } from './options.ts'

export function openaiRunner(options: OpenAiOptions): Runner {
  checkAddress(options.baseUrl)
  const settings = withDefaults(OpenAiAgent, options) as OpenAiSettings
  return {
    async *run(turn, context): AsyncGenerator<RunnerOutput, undefined> {
      const upstream = new Upstream(settings, context.signal)
      const request = await completionRequest(settings, turn, context)
      yield* answer(upstream.post('/chat/completions', request))
    },
  }
}

async function completionRequest(
  settings: OpenAiSettings,
  turn: RunnerTurn,
  context: RunnerContext,
): Promise<JsonObject> {
  const { model, system, parameters } = settings
  const instruction = system === undefined ? [] : [{ role: 'system', content: system }]
  const history = await recentMessages(context.history(), settings)
  const request = {
    model,
    stream: true,
    stream_options: { include_usage: true },
    ...parameters,
    messages: [...instruction, ...history, ...inputMessages(turn)],
  }
  return Object.fromEntries(Object.entries(request).filter(([, value]) => value !== null))
}

type ModelMessage = { readonly role: string; readonly content: string }

/** The newest messages that fit, oldest first; the first of them is a user's. */
async function recentMessages(
  history: AsyncIterable<Message>,
  { historyMax, historyCharsMax }: OpenAiSettings,
): Promise<readonly ModelMessage[]> {
  const recent: ModelMessage[] = []
  let chars = 0
  for await (const { role, text } of history) {
    if (text === '') continue
    recent.push({ role, content: text })
    chars += text.length
    while (recent.length > historyMax || (chars > historyCharsMax && recent.length > 0)) {
      chars -= recent.shift()?.content.length ?? 0
    }
  }
  const first = recent.findIndex(({ role }) => role === 'user')
  return first < 0 ? [] : recent.slice(first)
}

/**
 * The messages of this turn's input: a whole conversation is passed on unchanged, and instructions
 * become a system message before the text.
 */
function inputMessages({ input, text }: RunnerTurn): readonly ModelMessage[] {
  const { messages, instructions } = asObject(input)
  if (Array.isArray(messages) && messages.length > 0 && messages.every(isMessage)) {
    return messages.map(({ role, content }) => ({ role, content }))
  }
  const own = { role: 'user', content: text }
  return typeof instructions === 'string' ? [{ role: 'system', content: instructions }, own] : [own]
}

const ROLES: ReadonlySet<unknown> = new Set(['system', 'user', 'assistant'])

function isMessage(value: unknown): value is ModelMessage {
  const { role, content } = asObject(value)
  return ROLES.has(role) && typeof content === 'string'
}

/** The deltas of the answer, then its usage, and why it ended early, if it did. */
async function* answer(chunks: AsyncIterable<JsonObject>): AsyncGenerator<RunnerOutput> {
  let lastReason: unknown = null
  let lastUsage: unknown = null
  for await (const { choices, usage } of chunks) {
    const { delta, message, finish_reason: reason } = asObject(asList(choices)[0])
    const { content, refusal } = asObject(delta ?? message)
    for (const text of [asText(content), asText(refusal)]) {
      if (text !== '') yield { type: 'delta', text }
    }
    lastReason = reason ?? lastReason
    lastUsage = usage ?? lastUsage
  }
  if (lastUsage !== null) yield activity('usage', lastUsage)
  if (lastReason === null) throw new Error('the model’s answer was cut off before its end')
  if (lastReason !== 'stop') yield activity('stop', { reason: lastReason })
}

/** Throws, naming the field, if this is not an HTTP address. */
export function checkAddress(baseUrl: string, field = 'baseUrl'): void {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : null
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw invalid(field, 'must be an address that begins with http:// or https://')
  }
  if (url.username === '' && url.password === '') return
  throw invalid(field, 'must not contain a password: use apiKeyEnv')
}
