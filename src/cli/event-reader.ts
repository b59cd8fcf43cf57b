/** Follows a session's events over HTTP, and resumes at its position after a lost connection. */
import type { Delta, SessionEvent } from '../core/index.ts'
import { RemoteError, sessionPath, type Remote } from './remote.ts'

/** One server-sent event. */
type ServerSentEvent = { readonly event: string; readonly id: string | null; readonly data: string }

const RETRY_MS = 1_000
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
      if (error instanceof RemoteError && !isTemporary(error)) throw error
      lostAt ??= performance.now()
      if (performance.now() - lostAt > GIVE_UP_MS) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
  }
}

function isTemporary({ code }: RemoteError): boolean {
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
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body ?? []) {
    const blocks = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      const sent = readBlock(block)
      if (sent !== null) yield sent
    }
  }
}

/** Null for a comment or a `retry` field. */
function readBlock(block: string): ServerSentEvent | null {
  const fields = new Map(
    block.split('\n').map((line): [string, string] => {
      const colon = line.indexOf(': ')
      return [line.slice(0, colon), line.slice(colon + 2)]
    }),
  )
  const event = fields.get('event')
  const data = fields.get('data')
  if (event === undefined || data === undefined) return null
  return { event, id: fields.get('id') ?? null, data }
}
