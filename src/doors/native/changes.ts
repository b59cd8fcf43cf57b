/** The change feed: page by page as JSON, or as it happens as server-sent events. */
import { invalid, type ChangePage } from '../../core/index.ts'
import { EVENT_STREAM_TYPE, encodeEvent } from '../../wire/server-sent-events.ts'
import { changesView } from '../../wire/views.ts'
import { streamTexts } from '../event-stream.ts'
import { negotiate, type Exchange } from '../exchange.ts'
import { CHANGES_QUERY } from './queries.ts'

export async function getChanges(exchange: Exchange): Promise<void> {
  const { holdfast, signal } = exchange
  const type = negotiate(exchange.header('accept'), ['application/json', EVENT_STREAM_TYPE])
  const { after: given = null, limit } = CHANGES_QUERY.read(exchange.search)
  if (type === 'application/json') {
    const { hasMore, ...page } = await holdfast.readChanges(given, limit)
    return exchange.reply(200, { ...changesView(page), hasMore })
  }
  const after = positionIn(exchange.header('last-event-id')) ?? given
  // While a refusal can still be a status: does the feed reach back so far?
  const { position } = await holdfast.readChanges(after, 1)
  const start = after ?? position
  await streamTexts(exchange, texts(start, holdfast.changes({ after: start, signal })))
}

/** Begins with the position, so that a reader can list the sessions and miss no change. */
async function* texts(start: number, pages: AsyncIterable<ChangePage>): AsyncGenerator<string> {
  yield encoded({ changes: [], position: start })
  for await (const page of pages) yield encoded(page)
}

function encoded(page: ChangePage): string {
  return encodeEvent('changes', page.position, JSON.stringify(changesView(page)))
}

function positionIn(lastEventId: string | undefined): number | null {
  if (lastEventId === undefined || lastEventId === '') return null
  if (/^\d{1,15}$/.test(lastEventId)) return Number(lastEventId)
  throw invalid('Last-Event-ID', 'must be the id of an event of this stream')
}
