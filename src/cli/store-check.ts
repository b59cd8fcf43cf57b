/**
 * Proves what is stored of a session: its log (`log-check.ts`), the checksum of every event, its
 * row, and its snapshot, which must be what the log folds to. So one changed character is found.
 */
import { isDeepStrictEqual } from 'node:util'
import { crc32 } from 'node:zlib'
import { FoldedLog, messageOf, readSnapshot } from '../core/index.ts'
import { systemDigest } from '../runners/clock.ts'
import type { AuditedLog } from '../stores/audited-log.ts'
import { LogCheck, type Findings, type LoggedEvent } from './log-check.ts'

export function checkStored(log: AuditedLog): Findings {
  const check = new LogCheck()
  const { row, events } = log
  let last: Partial<LoggedEvent> = {}
  for (const [index, { body, checksum }] of events.entries()) {
    if (checksum !== null && crc32(body) !== checksum) {
      check.problem(`event ${index + 1} was changed: its checksum is wrong`)
    }
    const event = parse(body)
    if (event === null) check.problem(`event ${index + 1} is not JSON`)
    else check.add((last = event))
  }
  if (last.seq !== row.seq) check.problem(`the log ends at ${last.seq}, its row says ${row.seq}`)
  if ((last.type === 'session.closed') !== (row.state === 'closed')) {
    check.problem(`the session is ${row.state}, but its last event is ${last.type}`)
  }
  checkSnapshot(log, check)
  return check.finish()
}

/** One of another format is never used, so it may say what it likes. */
function checkSnapshot({ row, events, snapshot }: AuditedLog, check: LogCheck): void {
  const folded = new FoldedLog(row.id)
  const read = snapshot === null ? null : readSnapshot(snapshot.body, systemDigest)
  if (read !== null && 'kind' in read && read.kind === 'damaged') {
    check.problem(`the snapshot is damaged: ${read.why}`)
  }
  const stored = read !== null && 'session' in read ? read.session : null
  try {
    for (const [index, { body }] of events.entries()) {
      folded.add({ seq: index + 1, body })
      if (index + 1 !== snapshot?.seq || stored === null) continue
      const plain: unknown = JSON.parse(JSON.stringify(folded.session))
      if (isDeepStrictEqual(stored, plain)) continue
      check.problem(`the snapshot at ${snapshot.seq} is not what the log says`)
    }
    folded.finish(row)
  } catch (error) {
    check.problem(messageOf(error))
  }
  if (snapshot !== null && snapshot.seq > events.length) {
    check.problem(`the snapshot is of event ${snapshot.seq}, the log ends at ${events.length}`)
  }
}

function parse(body: string): LoggedEvent | null {
  try {
    return JSON.parse(body) as LoggedEvent
  } catch {
    // The caller reports it as a problem of this event.
    return null
  }
}
