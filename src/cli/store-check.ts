/**
 * Checks a session in a store: its log (`LogCheck`), the checksum of every event, its row, and
 * its snapshot, which must match the state that the log gives. It finds one changed character.
 */
import { isDeepStrictEqual } from 'node:util'
import { crc32 } from 'node:zlib'
import {
  FoldedLog,
  LogCheck,
  messageOf,
  readSnapshot,
  type CheckedEvent,
  type Findings,
  type StoredEvent,
} from '../core/index.ts'
import { systemDigest } from '../platform/clock.ts'
import type { AuditedLog } from '../stores/rows.ts'

/** Reads one event at a time: a log may be larger than the memory. */
export async function checkStored({ row, events, snapshot }: AuditedLog): Promise<Findings> {
  const check = new LogCheck()
  const fold = new FoldCheck(row, snapshot)
  let last: Partial<CheckedEvent> = {}
  let seq = 0
  for await (const { body, checksum } of events) {
    seq += 1
    if (checksum !== null && crc32(body) !== checksum) {
      check.problem(`event ${seq} was changed: its checksum is wrong`)
    }
    const event = parse(body)
    if (event === null) check.problem(`event ${seq} is not JSON`)
    else check.add((last = event))
    fold.add({ seq, body })
  }
  if (last.seq !== row.seq) check.problem(`the log ends at ${last.seq}, its row says ${row.seq}`)
  if ((last.type === 'session.closed') !== (row.state === 'closed')) {
    check.problem(`the session is ${row.state}, but its last event is ${last.type}`)
  }
  for (const problem of fold.finish()) check.problem(problem)
  return check.finish()
}

/** Folds a log, and compares the snapshot with the state at its position. */
class FoldCheck {
  readonly #row: AuditedLog['row']
  readonly #snapshot: AuditedLog['snapshot']
  /** The state in the snapshot; null if its format is not ours, since it is never used then. */
  readonly #stored: object | null
  readonly #folded: FoldedLog
  readonly #problems: string[] = []
  #events = 0
  /** False after an event that could not be folded. */
  #isFolding = true

  constructor(row: AuditedLog['row'], snapshot: AuditedLog['snapshot']) {
    this.#row = row
    this.#snapshot = snapshot
    this.#folded = new FoldedLog(row.id)
    const read = snapshot === null ? null : readSnapshot(snapshot.body, systemDigest)
    if (read !== null && 'kind' in read && read.kind === 'damaged') {
      this.#problems.push(`the snapshot is damaged: ${read.why}`)
    }
    this.#stored = read !== null && 'session' in read ? read.session : null
  }

  add(event: StoredEvent): void {
    this.#events = event.seq
    this.#fold(() => {
      this.#folded.add(event)
      if (event.seq === this.#snapshot?.seq && this.#stored !== null) this.#compare(this.#stored)
    })
  }

  finish(): readonly string[] {
    this.#fold(() => void this.#folded.finish(this.#row))
    const seq = this.#snapshot?.seq ?? 0
    if (seq > this.#events) {
      this.#problems.push(`the snapshot is of event ${seq}, the log ends at ${this.#events}`)
    }
    return this.#problems
  }

  #fold(step: () => void): void {
    if (!this.#isFolding) return
    try {
      step()
    } catch (error) {
      this.#isFolding = false
      this.#problems.push(messageOf(error))
    }
  }

  #compare(stored: object): void {
    const plain: unknown = JSON.parse(JSON.stringify(this.#folded.session))
    if (isDeepStrictEqual(stored, plain)) return
    this.#problems.push(`the snapshot at ${this.#folded.session?.seq} is not what the log says`)
  }
}

function parse(body: string): CheckedEvent | null {
  try {
    return JSON.parse(body) as CheckedEvent
  } catch {
    // The caller reports it as a problem of this event.
    return null
  }
}
