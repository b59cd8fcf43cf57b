/**
 * The session's events to one socket: as fast as it reads, and no faster. What became ready
 * together leaves together, and is encoded once for all who follow.
 */
import { HoldfastError, type Clock, type FeedItem, type StopSignal } from '../../core/index.ts'
import type { Unread } from '../unread.ts'
import type { ConnectLimits } from './limits.ts'
import type { Socket } from './socket.ts'

/** Events that became ready together share a message up to this; a larger one has its own. */
const MESSAGE_CHARS_MAX = 262_144
/** Events on their way that are not counted: a message beyond it waits until it has left. */
const AHEAD_BYTES = 65_536

const encoder = new TextEncoder()
/** Batches that several follow are the same array for all of them. */
const messages = new WeakMap<readonly FeedItem[], Uint8Array>()
const parts = new WeakMap<readonly FeedItem[], readonly (readonly FeedItem[])[]>()

function encoded(items: readonly FeedItem[]): Uint8Array {
  const known = messages.get(items)
  if (known !== undefined) return known
  const text = items.length === 1 ? items[0]?.json : `[${items.map(({ json }) => json).join(',')}]`
  const bytes = encoder.encode(text)
  messages.set(items, bytes)
  return bytes
}

/** The batch as messages of a size that a client can take, and that is bounded while it waits. */
function partsOf(items: readonly FeedItem[]): readonly (readonly FeedItem[])[] {
  const known = parts.get(items)
  if (known !== undefined) return known
  const all: FeedItem[][] = []
  let chars = MESSAGE_CHARS_MAX
  for (const item of items) {
    const { length } = item.json
    if (chars + length > MESSAGE_CHARS_MAX) {
      all.push([])
      chars = 0
    }
    all.at(-1)?.push(item)
    chars += length
  }
  parts.set(items, all)
  return all
}

/** Ends one stream. An `AbortController` for each of a crowd's sockets would weigh too much. */
export class SocketGone implements StopSignal {
  #aborted = false
  #listener: (() => void) | null = null

  get aborted(): boolean {
    return this.#aborted
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listener = listener
  }

  removeEventListener(): void {
    this.#listener = null
  }

  abort(): void {
    this.#aborted = true
    this.#listener?.()
  }
}

export type StreamOptions = {
  readonly clock: Clock
  readonly limits: Pick<ConnectLimits, 'bufferedBytesMax' | 'slowMs'>
  readonly unread: Unread
  /** Aborted when the socket is gone. */
  readonly gone: StopSignal
}

/** Sends all batches; ends with the feed, and throws what ends it badly. */
export async function streamTo(
  socket: Socket,
  feed: AsyncIterable<readonly FeedItem[]>,
  options: StreamOptions,
): Promise<void> {
  const { gone, limits } = options
  const aheadBytesMax = Math.min(AHEAD_BYTES, limits.bufferedBytesMax)
  for await (const items of feed) {
    for (const part of partsOf(items)) {
      // It may have ended after the batch was ready.
      if (gone.aborted) return
      const bytes = encoded(part)
      if (socket.bufferedBytes + bytes.length <= aheadBytesMax) socket.send(bytes)
      else await sendSlowly(socket, bytes, options)
    }
  }
}

/** Waits until it has left; a reader that takes too long is given up, and may come back. */
function sendSlowly(
  socket: Socket,
  bytes: Uint8Array,
  { clock, limits, unread }: StreamOptions,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const slow = (message: string): void => reject(new HoldfastError('too_slow', message))
    const cancel = clock.after(limits.slowMs, () =>
      slow('the client does not read what it is sent'),
    )
    const release = unread.add(bytes, () => {
      // A goodbye would wait behind all that the client has not read, and keep it in memory.
      socket.cut()
      slow('the client does not read, and too much waits for all together')
    })
    socket.send(bytes, () => {
      cancel()
      release()
      resolve()
    })
  })
}
