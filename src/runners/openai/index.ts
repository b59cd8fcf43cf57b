/**
 * The runner for models behind an OpenAI-compatible API. The upstream has no memory: each request
 * contains the conversation so far, from the log.
 */
import {
  invalid,
  type Runner,
  type RunnerContext,
  type RunnerOutput,
  type RunnerTurn,
} from '../../core/index.ts'
import { readChunks, readWhole, type Chunk } from './chunks.ts'
import { inputMessages, recentMessages } from './conversation.ts'
import { OPENAI_DEFAULTS, type OpenAiOptions } from './options.ts'
import { Upstream } from './upstream.ts'

export type { OpenAiOptions } from './options.ts'

export function openaiRunner(options: OpenAiOptions): Runner {
  checkAddress(options.baseUrl)
  const settings = { ...OPENAI_DEFAULTS, ...options }
  return {
    async *run(turn, context): AsyncGenerator<RunnerOutput, undefined> {
      const upstream = new Upstream(settings, context.signal)
      try {
        const request = await completionRequest(settings, turn, context)
        const response = await upstream.post('/chat/completions', request)
        const body = upstream.body(response)
        const isStream = response.headers.get('content-type')?.includes('event-stream') === true
        yield* answer(isStream ? readChunks(body) : [await readWhole(body)], upstream)
      } finally {
        upstream.close()
      }
    },
  }
}

type OpenAiSettings = OpenAiOptions & {
  readonly historyMax: number
  readonly historyCharsMax: number
}

async function completionRequest(
  settings: OpenAiSettings,
  turn: RunnerTurn,
  context: RunnerContext,
): Promise<Record<string, unknown>> {
  const { model, system, parameters = {} } = settings
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

/** The deltas of the answer, then its usage, and why it ended early, if it did. */
async function* answer(
  chunks: AsyncIterable<Chunk> | Iterable<Chunk>,
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
