/**
 * An answer that is a stream of server-sent events. It reads on only when the reader has taken what
 * there was, so a slow reader costs nothing but its socket.
 */
import {
  asHoldfastError,
  HoldfastError,
  positionAfter,
  type FeedItem,
  type Position,
} from '../core/index.ts'
import {
  EVENT_STREAM_TYPE,
  HEARTBEAT,
  STREAM_PREAMBLE,
  encodeItems,
  encodeNotice,
} from '../wire/server-sent-events.ts'
import type { Exchange } from './exchange.ts'
import type { Headers } from './refusals.ts'

type EventStreamOptions = {
  readonly headers?: Headers
  /** What is said before anything else. */
  readonly first?: string
  /** What is said if it breaks off, or the server stops. */
  readonly broken?: (error: HoldfastError) => string
  /** What is said after the feed's own end, if anything. */
  readonly lastWords?: () => Promise<string>
}

/** Sends a session's feed to its end. `from`: where the reader stands before it. */
export function streamFeed(
  exchange: Exchange,
  feed: AsyncIterable<readonly FeedItem[]>,
  { from = { seq: 0, delta: 0 }, ...options }: EventStreamOptions & { readonly from?: Position },
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

/** The reader comes back. */
const ending = ({ code }: HoldfastError): string => encodeNotice('ending', { code })

/** Sends events to their end. */
export async function streamTexts(
  exchange: Exchange,
  texts: AsyncIterable<string | Uint8Array>,
  {
    headers = [],
    first = STREAM_PREAMBLE,
    broken = ending,
    lastWords = async () => '',
  }: EventStreamOptions = {},
): Promise<void> {
  exchange.begin(EVENT_STREAM_TYPE, headers)
  const stopBeating = beat(exchange)
  const { streams } = exchange.context
  const drain = (): void =>
    exchange.end(broken(new HoldfastError('draining', 'the server is about to stop')))
  streams.add(drain)
  try {
    await exchange.write(first)
    for await (const text of texts) await exchange.write(text)
    exchange.response.end(exchange.signal.aborted ? '' : await lastWords())
  } catch (error) {
    exchange.response.end(broken(asHoldfastError(error)))
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
function beat({ response, context }: Exchange): () => void {
  const timer = setInterval(() => {
    if (!response.destroyed && !response.writableNeedDrain) response.write(HEARTBEAT)
  }, context.heartbeatMs)
  timer.unref()
  return () => clearInterval(timer)
}
