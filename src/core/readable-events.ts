/** Of a log, what a reader with some scopes sees: `EVENT_TYPES` says what only managers do. */
import type { Scope } from './access.ts'
import { isManaged } from './events.ts'
import { FeedItem, isTold, typeOf } from './feed-item.ts'
import type { StopSignal } from './feed.ts'
import { readEvents, type LogContext } from './history.ts'
import type { StoredEvent } from './store.ts'

export type FollowOptions = {
  /** After this event; 0 is the beginning. */
  readonly after?: number
  /** And after this delta of the turn then running. */
  readonly afterDelta?: number
  readonly signal?: StopSignal
  /** Events about attachments and links too, as is usual. */
  readonly presence?: boolean
  /** For this watcher: throws `not_owner` if the session's owner does not know it any more. */
  readonly watcher?: string
  /** The attachment that follows: `overview` says how far it has come. */
  readonly attachment?: string
}

/** Batches that several readers follow stay one array for those that read the same of it. */
const unmanaged = new WeakMap<readonly FeedItem[], readonly FeedItem[]>()

export function readableItems(
  items: readonly FeedItem[],
  scopes: readonly Scope[],
): readonly FeedItem[] {
  if (scopes.includes('manage') || !items.some(({ type }) => isManaged(type))) return items
  const known = unmanaged.get(items)
  if (known !== undefined) return known
  const readable = items.filter(({ type }) => !isManaged(type))
  unmanaged.set(items, readable)
  return readable
}

export function readableEvents(
  events: readonly StoredEvent[],
  scopes: readonly Scope[],
): readonly StoredEvent[] {
  if (scopes.includes('manage')) return events
  return events.filter((stored) => !isManaged(typeOf(stored)))
}

/** A log that is not appended to any more. */
export async function* closedFeed(
  log: LogContext,
  id: string,
  reader: { readonly after: number; readonly presence: boolean; readonly scopes: readonly Scope[] },
): AsyncGenerator<readonly FeedItem[]> {
  for await (const page of readEvents(log, id, reader.after)) {
    const items = page.map((stored) => new FeedItem(stored.seq, stored))
    const told = items.filter(({ type }) => isTold(type, reader.presence))
    yield readableItems(told, reader.scopes)
  }
}

/**
 * Ends as if there were no such session when its caller may not see it any more: `look` throws
 * then, and says what the caller may do otherwise.
 */
export function whileVisible(
  feed: AsyncGenerator<readonly FeedItem[]>,
  look: () => readonly Scope[],
): AsyncGenerator<readonly FeedItem[]> {
  const following = feed.next.bind(feed)
  const next: typeof following = async () => {
    for (;;) {
      const step = await following()
      try {
        const scopes = look()
        if (step.done === true) return step
        const value = readableItems(step.value, scopes)
        if (value.length > 0) return { value, done: false }
      } catch (unseen) {
        await feed.return(undefined)
        throw unseen
      }
    }
  }
  // No generator around it: one that waits for the next batch could not be ended from outside.
  return Object.assign(feed, { next })
}

/** Messages between two looks at whether the reader may still see the session. */
const CHECKED_EVERY = 16

/** A reader may be slow, and may not see the session any more: `check` throws then. */
export async function* checkedNowAndThen<Item>(
  items: AsyncIterable<Item>,
  check: () => Promise<void>,
): AsyncGenerator<Item> {
  let count = 0
  for await (const item of items) {
    if (count % CHECKED_EVERY === 0) await check()
    count += 1
    yield item
  }
}
