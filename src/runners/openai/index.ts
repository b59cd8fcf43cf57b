/**
 * The runner for models behind an OpenAI-compatible API. The upstream has no memory: each request
 * contains the conversation so far, from the log.
 */
import {
  invalid,
  NO_CAPABILITIES,
  type Message,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerPart,
  type RunnerTurn,
  type Settings,
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
  const { model, models, images, files } = settings
  const allowed = [...new Set([model, ...models])]
  const checkSettings = ({ model: wanted = model }: Settings): void => {
    if (allowed.includes(wanted)) return
    throw invalid('settings.model', `must be one of ${allowed.join(', ')}`)
  }
  return {
    capabilities: {
      ...NO_CAPABILITIES,
      images,
      files,
      settings: models.length === 0 ? ['instructions'] : ['instructions', 'model'],
      models: allowed,
      fork: 'any',
      load: true,
    },
    checkSettings,
    // Its memory is the history.
    fork: async () => null,
    async *run(turn, context): AsyncGenerator<RunnerOutput, undefined> {
      // The operator may have changed the models since the session was configured.
      checkSettings(context.settings)
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
  const { system, parameters } = settings
  const { model = settings.model, instructions } = context.settings
  const texts = [system, instructions].filter((text) => text !== undefined)
  const instruction = texts.map((content) => ({ role: 'system', content }))
  const history = await recentMessages(context, settings)
  const request = {
    model,
    stream: true,
    stream_options: { include_usage: true },
    ...parameters,
    messages: [...instruction, ...history, ...inputMessages(turn)],
  }
  return Object.fromEntries(Object.entries(request).filter(([, value]) => value !== null))
}

type ModelMessage = { readonly role: string; readonly content: string | readonly JsonObject[] }

/** Images and files of earlier messages that are sent again, the newest first. */
const HISTORY_BYTES_MAX = 20_971_520

/** The newest messages that fit, oldest first; the first of them is a user's. */
async function recentMessages(
  context: RunnerContext,
  settings: OpenAiSettings,
): Promise<readonly ModelMessage[]> {
  const { historyMax, historyCharsMax } = settings
  const recent: Message[] = []
  let chars = 0
  for await (const message of context.history()) {
    if (message.text === '' && message.parts === undefined) continue
    recent.push(message)
    chars += message.text.length
    while (recent.length > historyMax || (chars > historyCharsMax && recent.length > 0)) {
      chars -= recent.shift()?.text.length ?? 0
    }
  }
  const first = recent.findIndex(({ role }) => role === 'user')
  return first < 0 ? [] : withMedia(recent.slice(first), context, settings)
}

/** The model has no memory: it gets images and files again, as many as fit. */
async function withMedia(
  messages: readonly Message[],
  { readBlob }: RunnerContext,
  settings: OpenAiSettings,
): Promise<readonly ModelMessage[]> {
  const all: ModelMessage[] = []
  let left = HISTORY_BYTES_MAX
  for (const { role, text, parts = [] } of messages.toReversed()) {
    const loaded: RunnerPart[] = []
    for (const part of parts) {
      if (part.type === 'text') loaded.push(part)
      else if (part.bytes <= left && (part.type === 'image' ? settings.images : settings.files)) {
        left -= part.bytes
        loaded.push({ ...part, name: part.name ?? 'file', data: await readBlob(part.digest) })
      }
    }
    all.push({ role, content: contentOf(text, loaded) })
  }
  return all.toReversed()
}

/** A text, or a list of parts as the API takes them, if there is more than text. */
function contentOf(text: string, parts: readonly RunnerPart[] = []): ModelMessage['content'] {
  if (parts.every(({ type }) => type === 'text')) return text
  return parts.map((part) => {
    if (part.type === 'text') return { type: 'text', text: part.text }
    const url = `data:${part.mediaType};base64,${Buffer.from(part.data).toString('base64')}`
    if (part.type === 'image') return { type: 'image_url', image_url: { url } }
    return { type: 'file', file: { filename: part.name, file_data: url } }
  })
}

/**
 * The messages of this turn's input: a whole conversation is passed on unchanged, with its images
 * and files in its last message; instructions become a system message before the text.
 */
function inputMessages({ input, text, parts = [] }: RunnerTurn): readonly ModelMessage[] {
  const { messages, instructions } = asObject(input)
  if (Array.isArray(messages) && messages.length > 0 && messages.every(isMessage)) {
    const said = messages.map(({ role, content }) => ({ role, content }))
    const last = said.pop()
    const media = parts.filter(({ type }) => type !== 'text')
    const spoken: RunnerPart = { type: 'text', text: asText(last?.content) }
    const content = contentOf(spoken.text, [spoken, ...media])
    return [...said, { role: last?.role ?? 'user', content }]
  }
  const own = { role: 'user', content: contentOf(text, parts) }
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
  if (lastUsage !== null) yield activity('usage', usageOf(asObject(lastUsage)))
  if (lastReason === null) throw new Error('the model’s answer was cut off before its end')
  if (lastReason !== 'stop') yield activity('stop', { reason: lastReason })
}

function usageOf({ prompt_tokens: input, completion_tokens: output, ...more }: JsonObject) {
  const { cached_tokens: cached } = asObject(more['prompt_tokens_details'])
  const counts = { inputTokens: input, outputTokens: output, cachedTokens: cached }
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => typeof count === 'number'))
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
