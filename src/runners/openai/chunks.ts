/** Reads the upstream's stream: server-sent events with JSON. */
import { readLines } from '../../platform/lines.ts'
import { ANSWER_CHARS_MAX, LINE_CHARS_MAX } from './options.ts'

/** The fields of a chunk of a chat completion that are used. */
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
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    if (!line.startsWith('data:')) continue
    const data = line.slice('data:'.length).trim()
    if (data === DONE) return
    if (data !== '') yield parse(data)
  }
}

/** An answer that is one JSON object, although a stream was requested. */
export async function readWhole(body: AsyncIterable<Uint8Array>): Promise<Chunk> {
  return parse(await readText(body, ANSWER_CHARS_MAX))
}

/** The first characters of a body. */
export async function readText(body: AsyncIterable<Uint8Array>, charsMax: number): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true })
    if (text.length > charsMax) return text.slice(0, charsMax)
  }
  return text + decoder.decode()
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
