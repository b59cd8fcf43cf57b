/** The upstream's stream, read piece by piece: server-sent events with JSON in them. */
import { ANSWER_CHARS_MAX, LINE_CHARS_MAX } from './options.ts'

/** What is read of a chunk of a chat completion; upstreams differ in the rest. */
export type Chunk = {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null; readonly refusal?: string | null } | null
    readonly message?: { readonly content?: string | null; readonly refusal?: string | null } | null
    readonly finish_reason?: string | null
  }[]
  readonly usage?: unknown
  readonly error?: unknown
}

const DONE = '[DONE]'

/** Each event's JSON, up to `[DONE]` or the end. */
export async function* readChunks(body: AsyncIterable<Uint8Array>): AsyncGenerator<Chunk> {
  for await (const line of readLines(body)) {
    if (!line.startsWith('data:')) continue
    const data = line.slice('data:'.length).trim()
    if (data === DONE) return
    if (data !== '') yield parse(data)
  }
}

/** An answer that came as one JSON object, although a stream was asked for. */
export async function readWhole(body: AsyncIterable<Uint8Array>): Promise<Chunk> {
  return parse(await readText(body, ANSWER_CHARS_MAX))
}

/** The beginning of a body, no more than that. */
export async function readText(body: AsyncIterable<Uint8Array>, charsMax: number): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true })
    if (text.length > charsMax) return text.slice(0, charsMax)
  }
  return text + decoder.decode()
}

async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    yield* lines
    if (rest.length > LINE_CHARS_MAX) {
      throw new Error(`the model sent a line of more than ${LINE_CHARS_MAX} characters`)
    }
  }
  if (rest !== '') yield rest
}

function parse(json: string): Chunk {
  let chunk: unknown
  try {
    chunk = JSON.parse(json)
  } catch {
    throw new Error('the model sent something that is no JSON')
  }
  return typeof chunk === 'object' && chunk !== null ? chunk : {}
}
