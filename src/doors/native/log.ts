/**
 * What happens: the log of a session, its conversation, and the change feed of all sessions. Page
 * by page as JSON, or as it happens as server-sent events.
 */
import {
  invalid,
  type ChangePage,
  type Message,
  type PageBefore,
  type SessionHandle,
} from '../../core/index.ts'
import { Type } from '../../schema/typebox.ts'
import { encodeEvent, encodeNotice, parsePosition } from '../../wire/server-sent-events.ts'
import { changesView } from '../../wire/views.ts'
import { streamFeed, streamTexts } from '../event-stream.ts'
import { negotiate, type Exchange, type HiddenPositions } from '../exchange.ts'
import { jsonOrEvents, LAST_EVENT_ID, query, routes, sessionOfPath } from '../route.ts'
import * as schemas from './schemas.ts'

const CHANGES_QUERY = query({
  after: Type.Integer({
    minimum: 0,
    description: 'The position of the last page; without it, the end of the feed.',
  }),
  limit: Type.Integer({ minimum: 1, description: 'How many changes on a page.' }),
})
const EVENTS_QUERY = query({
  after: Type.String({ description: 'The last event that is known: SEQ, on a stream SEQ.N too.' }),
  before: Type.Integer({
    minimum: 1,
    description: 'Instead of after: the page that ends just before this event.',
  }),
  limit: Type.Integer({ minimum: 1, description: 'How many events on a page.' }),
})
const TRANSCRIPT_QUERY = query({
  before: Type.Integer({ minimum: 1, description: 'Only messages before this event.' }),
  limit: Type.Integer({
    minimum: 1,
    description: 'Only the last so many messages; at most the limit pageEvents.',
  }),
})
/** The answer's header that says where the page before ends, if there is one. */
const NEXT_BEFORE = 'X-Next-Before'
const TRANSCRIPT_TYPE = 'application/jsonl'
/** Lines of a transcript are gathered to writes of about this size. */
const WRITE_CHARS = 65_536

export const logRoutes = routes({
  'GET /v1/changes': {
    name: 'getChanges',
    summary: 'The sessions that changed after a position: one page, or as they change',
    operation: 'change.read',
    query: CHANGES_QUERY,
    headers: [LAST_EVENT_ID],
    answers: { 200: jsonOrEvents('A page, or the stream.', schemas.ChangesPage) },
    refusals: [406, 410],
    handle: getChanges,
  },
  'GET /v1/sessions/:id/events': {
    name: 'getEvents',
    summary: "A session's events: one page, or from a position on as they happen",
    operation: 'session.read',
    query: EVENTS_QUERY,
    headers: [LAST_EVENT_ID],
    answers: { 200: jsonOrEvents('A page, or the stream.', schemas.EventPage) },
    refusals: [404, 406, 410],
    // Any node can read the log; only the owner knows what happens now.
    session: (exchange) => (exchange.wantsEvents ? sessionOfPath(exchange) : null),
    handle: (exchange) => (exchange.wantsEvents ? streamEvents(exchange) : replyPage(exchange)),
  },
  'GET /v1/sessions/:id/transcript': {
    name: 'getTranscript',
    summary: 'The conversation, one message per line: all of it, or a page from its end',
    operation: 'session.read',
    query: TRANSCRIPT_QUERY,
    answers: {
      200: { description: 'JSON lines.', content: { [TRANSCRIPT_TYPE]: schemas.Message } },
    },
    refusals: [404, 406, 410],
    handle: getTranscript,
  },
})

async function getChanges(exchange: Exchange): Promise<void> {
  const { holdfast, signal, wantsEvents, positions } = exchange
  const { after: given = null, limit } = CHANGES_QUERY.read(exchange.search)
  const reveal = async (shown: number | null): Promise<number | null> =>
    shown === null || positions === null ? shown : positions.reveal(shown)
  if (!wantsEvents) {
    const { hasMore, ...page } = await holdfast.readChanges(await reveal(given), limit)
    return exchange.reply(200, { ...(await shownPage(page, positions)), hasMore })
  }
  const lastEventId = exchange.header('last-event-id') || null
  if (lastEventId !== null && !/^\d{1,15}$/.test(lastEventId)) {
    throw invalid('Last-Event-ID', 'must be the id of an event of this stream')
  }
  const after = await reveal(lastEventId === null ? given : Number(lastEventId))
  // While a refusal can still be a status: does the feed reach back so far?
  const { position } = await holdfast.authority.changes.read(after, 1)
  const start = after ?? position
  const pages = holdfast.changes({ after: start, signal })
  await streamTexts(exchange, changeTexts(start, pages, positions))
}

/** Begins with the position, so that a reader can list the sessions and miss no change. */
async function* changeTexts(
  start: number,
  pages: AsyncIterable<ChangePage>,
  positions: HiddenPositions | null,
) {
  const encoded = async (page: ChangePage): Promise<string> => {
    const view = await shownPage(page, positions)
    return encodeEvent('changes', view.position, JSON.stringify(view))
  }
  yield encoded({ changes: [], position: start })
  for await (const page of pages) yield encoded(page)
}

async function shownPage(page: ChangePage, positions: HiddenPositions | null) {
  const view = changesView(page)
  if (positions === null) return view
  return { ...view, position: await positions.hide(view.position) }
}

async function replyPage(exchange: Exchange): Promise<void> {
  const { before, after: text = '0', ...rest } = EVENTS_QUERY.read(exchange.search)
  const limit = pageLimit(exchange, rest.limit)
  if (before !== undefined) return replyPageBefore(exchange, { before, limit })
  const { seq: after } = parsePosition('after', text)
  // Shorter where the events are large: all of it is in memory until it has been sent.
  const { row, events, position: nextAfter } = await exchange.session.read(after, limit)
  const hasMore = nextAfter < (row?.seq ?? 0)
  // The log holds JSON already.
  const bodies = events.map(({ body }) => body).join(',')
  const page = `{"events":[${bodies}],"nextAfter":${nextAfter},"hasMore":${hasMore}}`
  exchange.send(200, 'application/json', page)
}

function pageLimit(exchange: Exchange, given: number | undefined): number {
  const { pageEvents } = exchange.holdfast.authority.limits
  const limit = given ?? pageEvents
  if (limit > pageEvents) throw invalid('limit', `must be from 1 to ${pageEvents}`)
  return limit
}

async function replyPageBefore(exchange: Exchange, page: PageBefore): Promise<void> {
  const { after } = EVENTS_QUERY.read(exchange.search)
  if (after !== undefined) throw invalid('before', 'cannot be given together with after')
  const { events, first, position } = await exchange.session.readBefore(page)
  const bodies = events.map(({ body }) => body).join(',')
  const more = `"nextBefore":${first},"nextAfter":${position},"hasMore":${first > 1}`
  exchange.send(200, 'application/json', `{"events":[${bodies}],${more}}`)
}

async function streamEvents(exchange: Exchange): Promise<void> {
  const { session, signal, search } = exchange
  const { after = '0', before } = EVENTS_QUERY.read(search)
  if (before !== undefined) throw invalid('before', 'is for pages: a stream goes on from after')
  // What a browser sends by itself when it reconnects counts more than the address it began with.
  const lastEventId = exchange.header('last-event-id') || null
  const from =
    lastEventId === null
      ? parsePosition('after', after)
      : parsePosition('Last-Event-ID', lastEventId)
  // While a refusal can still be a status: is there such a log, and does it reach that far?
  await session.read(from.seq, 0)
  const feed = await session.openFeed({ after: from.seq, afterDelta: from.delta, signal })
  await streamFeed(exchange, feed, { from, lastWords: () => farewell(session) })
}

async function farewell(session: SessionHandle): Promise<string> {
  const { closed } = await session.state()
  return encodeNotice('end', { code: 'session_closed', reason: closed?.reason ?? null })
}

async function getTranscript(exchange: Exchange): Promise<void> {
  const type = negotiate(exchange.header('accept'), [TRANSCRIPT_TYPE, 'application/x-ndjson'])
  const { before = Number.MAX_SAFE_INTEGER, limit } = TRANSCRIPT_QUERY.read(exchange.search)
  if (limit === undefined && before === Number.MAX_SAFE_INTEGER) return sendAll(exchange, type)
  const page = { before, limit: pageLimit(exchange, limit) }
  const { messages, nextBefore } = await exchange.session.messagesBefore(page)
  const lines = messages.map((message) => `${JSON.stringify(message)}\n`)
  const header = nextBefore === null ? [] : [NEXT_BEFORE, String(nextBefore)]
  exchange.send(200, type, lines.join(''), header)
}

/** The conversation, read and written piece by piece however long it is. */
async function sendAll(exchange: Exchange, type: string): Promise<void> {
  const messages = exchange.session.messages()
  // The first step fails if there is no such session, while a refusal can still be a status.
  let step: IteratorResult<Message> | null = await messages.next()
  exchange.begin(type)
  let lines = ''
  while (step.done !== true && !exchange.response.destroyed) {
    lines += `${JSON.stringify(step.value)}\n`
    // The message may be large and the reader slow: the loop keeps nothing of it while it waits.
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
