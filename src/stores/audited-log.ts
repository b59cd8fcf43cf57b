/** A session as it stands in a store, for a check of all that is stored. */
import type { SessionRow, StoredEvent } from '../core/store.ts'

/** The JSON of an event and the CRC-32 of that text; null: it was written by 0.1.0. */
export type AuditedEvent = { readonly body: string; readonly checksum: number | null }

export type AuditedLog = {
  readonly row: SessionRow
  /** Oldest first, to be read once, before the next log is asked for: a log may be long. */
  readonly events: Iterable<AuditedEvent> | AsyncIterable<AuditedEvent>
  readonly snapshot: StoredEvent | null
}
