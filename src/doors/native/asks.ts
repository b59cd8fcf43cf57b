/** The asks of all sessions: those that wait, page by page as JSON, or as they come and go. */
import { invalid, type InboxEvent, type InboxPage } from '../../core/index.ts'
import { PROBLEM } from '../../schema/contract.ts'
import { Type } from '../../schema/typebox.ts'
import { encodeEvent } from '../../wire/server-sent-events.ts'
import { openAskView, settledAskView } from '../../wire/views.ts'
import { streamTexts } from '../event-stream.ts'
import type { Exchange, HiddenPositions } from '../exchange.ts'
import {
  jsonOrEvents,
  LABEL,
  labelFilter,
  LAST_EVENT_ID,
  query,
  routes,
  givenCursor,
  shownCursor,
} from '../route.ts'
import * as schemas from './schemas.ts'

const ASKS_QUERY = query({
  session: Type.String({ description: 'Only those of this session, by its id.' }),
  kind: Type.String({ description: 'Only those of this kind.' }),
  label: LABEL,
  limit: Type.Integer({ minimum: 1, description: 'How many; at most the limit listMax.' }),
  cursor: Type.String({ description: 'The nextCursor of the page before.' }),
  answers: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), {
    maxItems: 64,
    [PROBLEM]: 'must be at most 64 kinds of ask',
    description:
      'On a stream: a kind of ask that the follower answers; may be there several times. While ' +
      'it follows it counts as a client to ask, in the sessions in which it may answer.',
  }),
})

export const askRoutes = routes({
  'GET /v1/asks': {
    name: 'listAsks',
    summary: 'The asks that wait, of all sessions: one page, or as they are opened and settled',
    operation: 'ask.read',
    query: ASKS_QUERY,
    headers: [LAST_EVENT_ID],
    answers: { 200: jsonOrEvents('A page, or the stream.', schemas.OpenAskPage) },
    refusals: [406],
    handle: (exchange) => (exchange.wantsEvents ? streamAsks(exchange) : replyAsks(exchange)),
  },
})

async function replyAsks(exchange: Exchange): Promise<void> {
  const { label, answers, cursor, ...rest } = ASKS_QUERY.read(exchange.search)
  if (answers !== undefined) throw invalid('answers', 'is for a stream: accept text/event-stream')
  const { asks, nextCursor } = await exchange.holdfast.listAsks({
    ...rest,
    ...labelFilter(label),
    ...(await givenCursor(exchange, cursor)),
  })
  const next = await shownCursor(exchange, nextCursor)
  exchange.reply(200, { asks: asks.map(openAskView), nextCursor: next })
}

async function streamAsks(exchange: Exchange): Promise<void> {
  const { holdfast, signal, positions } = exchange
  const { label, limit, cursor, ...rest } = ASKS_QUERY.read(exchange.search)
  // A follower that may not answer any more must not count as one that does.
  if (rest.answers !== undefined) exchange.holdBy('ask.answer')
  const wrong = limit === undefined ? cursor && 'cursor' : 'limit'
  if (wrong) throw invalid(wrong, 'is for a page: a stream has all that wait')
  const lastEventId = exchange.header('last-event-id') || null
  if (lastEventId !== null && !/^\d{1,15}$/.test(lastEventId)) {
    throw invalid('Last-Event-ID', 'must be the id of an event of this stream')
  }
  const shown = Number(lastEventId)
  const known = positions === null ? shown : await positions.reveal(shown)
  const after = lastEventId === null ? {} : { after: known }
  const pages = holdfast.asks({ ...rest, ...labelFilter(label), ...after, signal })
  await streamTexts(exchange, inboxTexts(pages, positions))
}

/** Only what ends a page has an id: a reader that was lost within one gets all of it again. */
async function* inboxTexts(
  pages: AsyncIterable<InboxPage>,
  positions: HiddenPositions | null,
): AsyncGenerator<string> {
  for await (const { events, position, open } of pages) {
    const id = position === null || positions === null ? position : await positions.hide(position)
    for (const [index, event] of events.entries()) {
      const isLast = open === undefined && index === events.length - 1
      yield encodeEvent(event.type, isLast ? id : null, JSON.stringify(viewOf(event)))
    }
    if (open !== undefined) yield encodeEvent('asks.listed', id, JSON.stringify({ asks: open }))
  }
}

function viewOf(event: InboxEvent) {
  return event.type === 'ask.opened' ? openAskView(event) : settledAskView(event)
}
