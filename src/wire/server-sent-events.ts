/**
 * Server-sent events: how a session's feed is written to a text/event-stream, and how a reader says
 * where it stands. An id is `SEQ`, or `SEQ.N` once the turn that runs has sent N deltas.
 */
import { invalid, positionAfter, type FeedItem, type Position } from '../core/index.ts'

export const EVENT_STREAM_TYPE = 'text/event-stream'

/** Begins every stream: how long a browser waits before it connects again. */
export const STREAM_PREAMBLE = 'retry: 1000\n\n'

/** A comment: keeps the connection from looking dead. */
export const HEARTBEAT = ': heartbeat\n\n'

/** A larger text than this is not put together, however much is ready. */
const TEXT_CHARS_MAX = 262_144

/**
 * All that is ready as one text, so that it goes out in one write; if it is large, as several.
 * `from` is where the reader stands before it.
 */
export function* encodeItems(items: readonly FeedItem[], from: Position): Generator<string> {
  let text = ''
  let position = from
  for (const item of items) {
    position = positionAfter(position, item)
    const { seq, delta } = position
    text += encodeEvent(item.type, delta === 0 ? seq : `${seq}.${delta}`, item.json)
    if (text.length < TEXT_CHARS_MAX) continue
    yield text
    text = ''
  }
  if (text !== '') yield text
}

/** Without an id the reader's position stays. */
export function encodeEvent(type: string, id: string | number | null, json: string): string {
  return `event: ${type}\n${id === null ? '' : `id: ${id}\n`}data: ${json}\n\n`
}

/** Something about the stream itself: it has no id, so that the reader's position stays. */
export function encodeNotice(event: 'end' | 'ending', data: Readonly<Record<string, unknown>>) {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

const POSITION = /^(\d{1,15})(?:\.(\d{1,15}))?$/

/** Reads `SEQ` or `SEQ.N`; `field` is what the text came in. */
export function parsePosition(field: string, text: string): Position {
  const [, seq, delta = '0'] = POSITION.exec(text) ?? []
  if (seq === undefined) throw invalid(field, 'must be SEQ or SEQ.N, as in the id of an event')
  return { seq: Number(seq), delta: Number(delta) }
}
