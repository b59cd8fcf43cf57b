/** An answer as server-sent events, as OpenAI's clients parse them. */
import { asHoldfastError } from '../../core/index.ts'
import { EVENT_STREAM_TYPE } from '../../wire/server-sent-events.ts'
import { beat } from '../event-stream.ts'
import type { Exchange, Headers } from '../exchange.ts'
import { openAiError } from './errors.ts'

/**
 * Sends texts as they come. A failure is reported in the stream, as OpenAI's clients expect it: an
 * `error` in place of the next piece.
 */
export async function streamTexts(
  exchange: Exchange,
  texts: AsyncIterable<string>,
  headers: Headers,
): Promise<void> {
  exchange.begin(EVENT_STREAM_TYPE, headers)
  exchange.response.flushHeaders()
  const stopBeating = beat(exchange)
  try {
    for await (const text of texts) await exchange.write(text)
    exchange.response.end()
  } catch (thrown) {
    exchange.response.end(errorText(openAiError(asHoldfastError(thrown))))
  } finally {
    stopBeating()
  }
}

export function errorText(error: unknown): string {
  return `event: error\ndata: ${JSON.stringify({ error })}\n\n`
}
