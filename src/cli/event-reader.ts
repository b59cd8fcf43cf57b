/** Follows a session's events over HTTP, and resumes at its position after a lost connection. */
import { ApiError } from '../client/http-api.ts'
import { sessionPath } from '../wire/views.ts'
import type { Delta, SessionEvent } from '../core/index.ts'
import { readLines } from '../platform/text.ts'
import type { Remote } from './remote.ts'

/** One server-sent event. */
type ServerSentEvent = { readonly event: string; readonly id: string | null; readonly data: string }

const RETRY_MS = 1_000
/** The longest line, in characters: an event may contain an input of many megabytes. */
const LINE_CHARS_MAX = 1_073_741_824
/** The time without a connection after which the command gives up. */
const GIVE_UP_MS = 60_000

/** The events after a position, then new ones, until the session is closed. */
export async function* followEvents(
  remote: Remote,
  session: string,
  after: string,
): AsyncGenerator<SessionEvent | Delta> {
  let position = after
  let lostAt: number | null = null
  for (;;) {
    try {
      for await (const { event, id, data } of openStream(remote, session, position)) {
        lostAt = null
        if (event === 'end') return
        if (event === 'ending') break
        position = id ?? position
        yield JSON.parse(data) as SessionEvent | Delta
      }
    } catch (error) {
      if (error instanceof ApiError && !isTemporary(error)) throw error
      lostAt ??= performance.now()
      if (performance.now() - lostAt > GIVE_UP_MS) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

function isTemporary({ code }: ApiError): boolean {
  return ['unreachable', 'draining', 'too_many', 'not_owner', 'store_unavailable'].includes(code)
}

async function* openStream(
  remote: Remote,
  session: string,
  position: string,
): AsyncGenerator<ServerSentEvent> {
  const { body } = await remote.call(`${sessionPath(session)}/events`, {
    headers: { accept: 'text/event-stream', 'last-event-id': position },
  })
  if (body === null) return
  let fields = new Map<string, string>()
  for await (const line of readLines(body, LINE_CHARS_MAX)) {
    const colon = line.indexOf(': ')
    if (line !== '') {
      fields.set(line.slice(0, colon), line.slice(colon + 2))
      continue
    }
    const [event, data] = [fields.get('event'), fields.get('data')]
    // Without both it is a comment, or the time to wait before reconnecting.
    if (event !== undefined && data !== undefined) {
      yield { event, id: fields.get('id') ?? null, data }
    }
    fields = new Map()
  }
}
