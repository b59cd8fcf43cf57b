/** A session's log: page by page as JSON, or as it happens as server-sent events. */
import { invalid, type Position, type SessionHandle, type SessionRef } from '../../core/index.ts'
import { EVENT_STREAM_TYPE, encodeNotice, parsePosition } from '../../wire/server-sent-events.ts'
import { streamFeed } from '../event-stream.ts'
import { negotiate, type Exchange } from '../exchange.ts'
import { EVENTS_QUERY } from './queries.ts'

export async function getEvents(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  const session = exchange.holdfast.session(id)
  if (eventsType(exchange) === EVENT_STREAM_TYPE) await streamEvents(exchange, session)
  else await replyPage(exchange, session)
}

/** Any node can read the log; only the owner knows what happens now. */
export function sessionOfStream(exchange: Exchange): SessionRef | null {
  return eventsType(exchange) === EVENT_STREAM_TYPE ? { id: exchange.params[0] ?? '' } : null
}

function eventsType(exchange: Exchange): string {
  return negotiate(exchange.header('accept'), ['application/json', EVENT_STREAM_TYPE])
}

async function replyPage(exchange: Exchange, session: SessionHandle): Promise<void> {
  const { pageEvents } = exchange.holdfast.authority.limits
  const { after: text = '0', limit = pageEvents } = EVENTS_QUERY.read(exchange.search)
  const { seq: after } = parsePosition('after', text)
  if (limit > pageEvents) throw invalid('limit', `must be from 1 to ${pageEvents}`)
  // Shorter where the events are large: all of it is in memory until it has been sent.
  const { row, events } = await session.read(after, limit)
  const nextAfter = events.at(-1)?.seq ?? after
  const hasMore = nextAfter < (row?.seq ?? 0)
  // The log holds JSON already.
  const bodies = events.map(({ body }) => body).join(',')
  const page = `{"events":[${bodies}],"nextAfter":${nextAfter},"hasMore":${hasMore}}`
  exchange.send(200, 'application/json', page)
}

async function streamEvents(exchange: Exchange, session: SessionHandle): Promise<void> {
  const { seq, delta } = positionOf(exchange)
  // While a refusal can still be a status: is there such a log, and does it reach that far?
  await session.read(seq, 0)
  const { signal } = exchange
  const feed = await session.openFeed({ after: seq, afterDelta: delta, signal })
  await streamFeed(exchange, feed, { from: { seq, delta }, lastWords: () => farewell(session) })
}

/** What a browser sends by itself when it reconnects counts more than the address it began with. */
function positionOf(exchange: Exchange): Position {
  const { after = '0' } = EVENTS_QUERY.read(exchange.search)
  const lastEventId = exchange.header('last-event-id')
  if (lastEventId !== undefined && lastEventId !== '') {
    return parsePosition('Last-Event-ID', lastEventId)
  }
  return parsePosition('after', after)
}

async function farewell(session: SessionHandle): Promise<string> {
  const { closed } = await session.state()
  return encodeNotice('end', { code: 'session_closed', reason: closed?.reason ?? null })
}
