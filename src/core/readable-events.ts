/** Of a log, what a reader with some scopes sees: `EVENT_TYPES` says what only managers do. */
import type { Scope } from './access.ts'
import { isManaged } from './events.ts'
import { FeedItem, isTold, typeOf } from './feed.ts'
import { readEvents, type LogContext } from './history.ts'
import type { StoredEvent } from './store.ts'

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
