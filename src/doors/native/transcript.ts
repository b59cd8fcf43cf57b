/** The conversation as JSON lines, read and written piece by piece however long it is. */
import type { Message } from '../../core/index.ts'
import { negotiate, type Exchange } from '../exchange.ts'

export const TRANSCRIPT_TYPE = 'application/jsonl'

/** Lines are gathered to writes of about this size. */
const WRITE_CHARS = 65_536

export async function getTranscript(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const type = negotiate(exchange.header('accept'), [TRANSCRIPT_TYPE, 'application/x-ndjson'])
  const messages = exchange.holdfast.session(id).messages()
  // The first step fails if there is no such session, while a refusal can still be a status.
  let step: IteratorResult<Message> | null = await messages.next()
  exchange.begin(type)
  let lines = ''
  while (step.done !== true && !exchange.response.destroyed) {
    lines += `${JSON.stringify(step.value)}\n`
    // What was said may be large, and the reader slow: nothing of it is kept while that is waited
    // for.
    step = null
    if (lines.length >= WRITE_CHARS) {
      const written = exchange.write(lines)
      lines = ''
      await written
    }
    step = await messages.next()
  }
  exchange.response.end(lines)
}
