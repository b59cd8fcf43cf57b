/** Streams of server-sent events, continued after lost connections. */
import { ApiError } from '../client/http-api.ts'
import { readLines } from '../platform/text.ts'
import type { Remote } from './remote.ts'

const RETRY_MS = 1_000
/** The time without a connection after which the command gives up. */
const GIVE_UP_MS = 60_000
const TEMPORARY = ['unreachable', 'draining', 'too_many', 'not_owner', 'store_unavailable']
/** The longest line, in characters: an event may contain an input of many megabytes. */
const LINE_CHARS_MAX = 1_073_741_824

export type StreamEvent = { readonly event: string; readonly data: string }

/** The events after a position (null: from the start), then new ones, until the stream's end. */
export async function* followStream(
  remote: Remote,
  path: string,
  after: string | null,
): AsyncGenerator<StreamEvent> {
  let position = after
  let lostAt: number | null = null
  for (;;) {
    try {
      for await (const { event, id, data } of serverSentEvents(remote, path, position)) {
        lostAt = null
        if (event === 'end') return
        if (event === 'ending') break
        position = id ?? position
        yield { event, data }
      }
    } catch (error) {
      if (error instanceof ApiError && !TEMPORARY.includes(error.code)) throw error
      lostAt ??= performance.now()
      if (performance.now() - lostAt > GIVE_UP_MS) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

async function* serverSentEvents(remote: Remote, path: string, position: string | null) {
  const { body } = await remote.call(path, {
    headers: {
      accept: 'text/event-stream',
      ...(position === null ? {} : { 'last-event-id': position }),
    },
  })
  if (body === null) return
  let fields: Partial<Record<string, string>> = {}
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    const colon = line.indexOf(': ')
    if (line !== '') {
      fields[line.slice(0, colon)] = line.slice(colon + 2)
      continue
    }
    const { event, id, data } = fields
    // Without both it is a comment, or the time to wait before reconnecting.
    if (event !== undefined && data !== undefined) yield { event, id, data }
    fields = {}
  }
}
