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
import { asObject, type JsonObject } from '../json.ts'
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
      try {
        const request = await completionRequest(settings, turn, context)
        yield* answer(upstream.post('/chat/completions', request), upstream)
      } finally {
        upstream.close()
      }
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

/** The fields of a chunk of a chat completion that are used. */
type Chunk = {
  readonly choices?: readonly {
    readonly delta?: ChunkText | null
    readonly message?: ChunkText | null
    readonly finish_reason?: string | null
  }[]
  readonly usage?: unknown
  readonly error?: unknown
}

type ChunkText = { readonly content?: string | null; readonly refusal?: string | null }

/** The deltas of the answer, then its usage, and why it ended early, if it did. */
async function* answer(
  chunks: AsyncIterable<Chunk>,
  upstream: Upstream,
): AsyncGenerator<RunnerOutput, undefined> {
  let reason: string | null = null
  let usage: unknown = null
  for await (const chunk of chunks) {
    if (chunk.error !== undefined && chunk.error !== null) throw upstream.reported(chunk.error)
    const choice = chunk.choices?.[0]
    const part = choice?.delta ?? choice?.message
    for (const text of [part?.content, part?.refusal]) {
      if (typeof text === 'string' && text !== '') yield { type: 'delta', text }
    }
    reason = choice?.finish_reason ?? reason
    usage = chunk.usage ?? usage
  }
  if (usage !== null) yield { type: 'activity', kind: 'usage', data: usage }
  if (reason === null) throw new Error('the model’s answer was cut off before its end')
  if (reason !== 'stop') yield { type: 'activity', kind: 'stop', data: { reason } }
  return undefined
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
