/**
 * An answer that is a stream of server-sent events. It reads on only when the reader has taken what
 * there was, so a slow reader costs nothing but its socket.
 */
import { asHoldfastError, positionAfter, type FeedItem, type Position } from '../core/index.ts'
import {
  EVENT_STREAM_TYPE,
  HEARTBEAT,
  STREAM_PREAMBLE,
  encodeItems,
  encodeNotice,
} from '../wire/server-sent-events.ts'
import type { Exchange, Headers } from './exchange.ts'

export type EventStreamOptions = {
  /** Where the reader stands before it. */
  readonly from?: Position
  readonly headers?: Headers
  /** What is said after the feed's own end, if anything. */
  readonly lastWords?: () => Promise<string>
}

/** Sends a session's feed to its end. */
export function streamFeed(
  exchange: Exchange,
  feed: AsyncIterable<readonly FeedItem[]>,
  { from = { seq: 0, delta: 0 }, ...options }: EventStreamOptions = {},
): Promise<void> {
  return streamTexts(exchange, encodedFeed(feed, from), options)
}

async function* encodedFeed(
  feed: AsyncIterable<readonly FeedItem[]>,
  from: Position,
): AsyncGenerator<Uint8Array> {
  let position = from
  for await (const items of feed) {
    yield* encoded(items, position)
    position = items.reduce(positionAfter, position)
  }
}

/** Sends events to their end. If they break off, `ending` says why; the reader comes back. */
export async function streamTexts(
  exchange: Exchange,
  texts: AsyncIterable<string | Uint8Array>,
  { headers = [], lastWords = async () => '' }: Omit<EventStreamOptions, 'from'> = {},
): Promise<void> {
  exchange.begin(EVENT_STREAM_TYPE, headers)
  const stopBeating = beat(exchange)
  const { streams } = exchange.context
  const drain = (): void => exchange.end(encodeNotice('ending', { code: 'draining' }))
  streams.add(drain)
  try {
    await exchange.write(STREAM_PREAMBLE)
    for await (const text of texts) await exchange.write(text)
    exchange.response.end(exchange.signal.aborted ? '' : await lastWords())
  } catch (error) {
    exchange.response.end(encodeNotice('ending', { code: asHoldfastError(error).code }))
  } finally {
    streams.delete(drain)
    stopBeating()
  }
}

const encoder = new TextEncoder()

/** Items as bytes: encoded once for all readers at the same position. */
type Encoded = {
  readonly from: Position
  readonly parts: Uint8Array[]
  readonly rest: Generator<string>
}
const cache = new WeakMap<readonly FeedItem[], Encoded>()

function* encoded(items: readonly FeedItem[], from: Position): Generator<Uint8Array> {
  const known = cache.get(items)
  const isSame = known?.from.seq === from.seq && known.from.delta === from.delta
  const all: Encoded = isSame ? known : { from, parts: [], rest: encodeItems(items, from) }
  cache.set(items, all)
  const { parts, rest } = all
  for (let index = 0; ; index += 1) {
    const next = parts[index] === undefined ? rest.next() : null
    if (next?.done === true) return
    if (next !== null) parts.push(encoder.encode(next.value))
    yield parts[index] as Uint8Array
  }
}

/** Signs of life while a stream has nothing to say. The returned function ends them. */
export function beat({ response, context }: Exchange): () => void {
  const timer = setInterval(() => {
    if (!response.destroyed && !response.writableNeedDrain) response.write(HEARTBEAT)
  }, context.heartbeatMs)
  timer.unref()
  return () => clearInterval(timer)
}
