/** `holdfast verify`: checks that logs and transcripts are linear and complete. */
import { existsSync, statSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { crc32 } from 'node:zlib'
import {
  FoldedLog,
  LogCheck,
  messageOf,
  blobsNamedBy,
  POSITION_KIND,
  readSnapshot,
  type CheckedEvent,
  type Findings,
} from '../core/index.ts'
import { systemDigest } from '../platform/clock.ts'
import type { AuditedLog } from '../stores/rows.ts'
import { auditPostgres } from '../stores/postgres/audit.ts'
import { auditSqlite } from '../stores/sqlite/audit.ts'
import { defineCommand, text, toggle, type FlagValues } from './command.ts'
import { parseObject, verifyFile } from './file-checks.ts'
import { counted, printable, printJson } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { isPostgres, storeFile, storeName } from './stores.ts'

const VERIFY_FLAGS = {
  data: text('DIR', "a SQLite store's folder, instead of a running server; a server may use it"),
  store: text('STORE', 'instead of --data: sqlite:FILE or postgres://…; nodes may use it'),
  settled: toggle('an unfinished turn is an error too'),
  json: toggle('one JSON object per log, for programs'),
  ...REMOTE_FLAGS,
}

const ANY = 'IDs, KEYs and FILEs, or nothing'

export const verify = defineCommand({
  name: 'verify',
  operands: { usage: '[ID|KEY | FILE.jsonl]…', takes: ANY, min: 0, max: Infinity },
  summary:
    'Checks that logs have no gaps, that one turn runs at a time, and that every request has one ' +
    'end. Checks the named sessions or all, of a running server or of a store; exported logs and ' +
    'transcripts; Claude Code transcripts, for forks and several roots; or recordings of a ' +
    "browser client's traffic. In a store it also checks the checksums of events, snapshots, " +
    'and the bytes of images and files. Changes nothing.',
  flags: VERIFY_FLAGS,
  async run(values, names) {
    let [logs, bad] = [0, 0]
    for await (const found of checkedLogs(values, names)) {
      const unsettled = found.pending.map((turn) => `turn ${turn} is not over`)
      const problems = [...found.problems, ...(values.settled ? unsettled : [])]
      logs += 1
      if (problems.length > 0) bad += 1
      if (values.json) printJson([{ ...found, problems }])
      else print({ ...found, problems })
    }
    if (!values.json) console.log(`${logs} checked, ${bad} bad`)
    return bad === 0 ? 0 : 1
  },
})

type CheckedLog = Findings & { readonly name: string; readonly key: string | null }

async function* checkedLogs(
  values: FlagValues<typeof VERIFY_FLAGS>,
  names: readonly string[],
): AsyncGenerator<CheckedLog> {
  if (values.data !== null || values.store !== null) return yield* verifyStore(values, names)
  if (names.length === 0) return yield* verifyRemote(new Remote(values))
  for (const name of names) {
    try {
      yield* verifyOne(values, name)
    } catch (error) {
      // One of many that cannot be read does not keep the others from being checked.
      if (names.length === 1) throw error
      const problems = [messageOf(error)]
      yield { name, key: null, events: 0, turns: 0, problems, pending: [] }
    }
  }
}

async function* verifyOne(
  values: FlagValues<typeof VERIFY_FLAGS>,
  name: string,
): AsyncGenerator<CheckedLog> {
  const isFile = existsSync(name) && statSync(name).isFile()
  if (isFile) yield { name, key: null, ...(await verifyFile(name)) }
  else yield* verifyRemote(new Remote(values), name)
}

function print({ name, key, events, turns, problems, pending }: CheckedLog): void {
  const shown = key === null ? printable(name) : `${name} ${printable(JSON.stringify(key))}`
  const open = pending.length === 0 ? '' : `, not over: ${printable(pending.join(' '))}`
  const facts = `${counted(events, 'event')}, ${counted(turns, 'turn')}${open}`
  console.log(`${problems.length === 0 ? 'ok ' : 'BAD'}  ${shown}  ${facts}`)
  for (const problem of problems) console.log(`     ${printable(problem)}`)
}

async function* verifyRemote(remote: Remote, name?: string): AsyncGenerator<CheckedLog> {
  const sessions =
    name === undefined
      ? await remote.sessions({}, Number.MAX_SAFE_INTEGER)
      : [{ id: await remote.find(name), key: null }]
  for (const { id, key } of sessions) {
    const check = new LogCheck()
    let hasPosition = false
    for await (const event of remote.events(id)) {
      check.add(event)
      hasPosition ||= event.type === 'turn.activity' && event.kind === POSITION_KIND
    }
    const written = hasPosition ? await remote.writtenOutside(id) : 0
    if (written > 0) check.problem(`${written} messages of the agent's program are not in the log`)
    yield { name: id, key, ...check.finish() }
  }
}

async function* verifyStore(
  values: FlagValues<typeof VERIFY_FLAGS>,
  names: readonly string[],
): AsyncGenerator<CheckedLog> {
  const store = storeName(values)
  const logs = isPostgres(store) ? auditPostgres({ url: store }) : auditSqlite(storeFile(values))
  const missing = new Set(names)
  for await (const log of logs) {
    const { id, key } = log.row
    const isNamed = names.includes(id) || (key !== null && names.includes(key))
    if (names.length > 0 && !isNamed) continue
    missing.delete(id)
    missing.delete(key ?? id)
    yield { name: id, key, ...(await checkStored(log)) }
  }
  const [name] = missing
  if (name !== undefined) throw new Error(`there is no session ${name} in the store`)
}

/**
 * Checks a session in a store: its log (`LogCheck`), the checksum of every event, its row, its
 * snapshot, which must match the state that the log gives, and the bytes that its events name. It
 * finds one changed character.
 * It reads one event at a time: a log may be larger than the memory.
 */
async function checkStored(stored: AuditedLog): Promise<Findings> {
  const { row, events, snapshot } = stored
  const check = new LogCheck()
  const digests = new Set<string>()
  const fold = stateCheck(row.id, snapshot, (problem) => check.problem(problem))
  let last: Partial<CheckedEvent> = {}
  let seq = 0
  for await (const { body, checksum } of events) {
    seq += 1
    if (checksum !== null && crc32(body) !== checksum) {
      check.problem(`event ${seq} was changed: its checksum is wrong`)
    }
    const event = parseObject(body) as CheckedEvent | null
    if (event === null) check.problem(`event ${seq} is not JSON`)
    else check.add((last = event))
    for (const digest of blobsNamedBy(event ?? {})) digests.add(digest)
    fold((log) => log.add({ seq, body }))
  }
  if (last.seq !== row.seq) check.problem(`the log ends at ${last.seq}, its row says ${row.seq}`)
  if ((last.type === 'session.closed') !== (row.state === 'closed')) {
    check.problem(`the session is ${row.state}, but its last event is ${last.type}`)
  }
  fold((log) => void log.finish(row))
  const snapshotSeq = snapshot?.seq ?? 0
  if (snapshotSeq > seq) {
    check.problem(`the snapshot is of event ${snapshotSeq}, the log ends at ${seq}`)
  }
  for (const digest of digests) {
    const problem = await blobProblem(stored, digest)
    if (problem !== null) check.problem(problem)
  }
  return check.finish()
}

async function blobProblem({ readBlob }: AuditedLog, digest: string): Promise<string | null> {
  const data = await readBlob(digest)
  if (data === null) return `the bytes ${digest} are missing`
  return `sha256:${systemDigest(data, 'hex')}` === digest
    ? null
    : `the bytes ${digest} were changed`
}

/** Folds a log step by step, and compares the snapshot with the state at its position. */
function stateCheck(
  id: string,
  snapshot: AuditedLog['snapshot'],
  report: (problem: string) => void,
) {
  /** The state in the snapshot; null if its format is not ours, since it is never used then. */
  let stored: object | null = null
  if (snapshot !== null) {
    const read = readSnapshot(snapshot.body, systemDigest)
    if ('session' in read) stored = read.session
    else if (read.kind === 'damaged') report(`the snapshot is damaged: ${read.why}`)
  }
  /** Null after an event that could not be folded. */
  let log: FoldedLog | null = new FoldedLog(id)
  return (step: (log: FoldedLog) => void): void => {
    if (log === null) return
    try {
      step(log)
      const { session } = log
      if (stored === null || session?.seq !== snapshot?.seq) return
      if (!isDeepStrictEqual(stored, JSON.parse(JSON.stringify(session)))) {
        report(`the snapshot at ${session?.seq} is not what the log says`)
      }
      stored = null
    } catch (error) {
      log = null
      report(messageOf(error))
    }
  }
}
