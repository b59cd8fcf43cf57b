/** `holdfast verify`: checks that logs and transcripts are linear and complete. */
import { createReadStream, existsSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { LogCheck, type CheckedEvent, type Findings } from '../core/index.ts'
import { auditPostgres } from '../stores/postgres/audit.ts'
import { auditSqlite } from '../stores/sqlite/audit.ts'
import { ClaudeCheck, type ClaudeLine } from './claude-check.ts'
import { defineCommand } from './command.ts'
import { text, toggle, type FlagValues } from './flags.ts'
import { printable, printJson } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { collectSessions } from './sessions.ts'
import { isPostgres, storeFile, storeName } from './store-flags.ts'
import { checkStored } from './store-check.ts'
import { RecordingCheck, type RecordingLine } from './recording-check.ts'
import { TranscriptCheck, type CheckedMessage } from './transcript-check.ts'

const VERIFY_FLAGS = {
  data: text('DIR', "a SQLite store's folder, instead of a running server; a server may use it"),
  store: text('STORE', 'instead of --data: sqlite:FILE or postgres://…; nodes may use it'),
  settled: toggle('an unfinished turn is an error too'),
  json: toggle('one JSON object per log, for programs'),
  ...REMOTE_FLAGS,
}

export const verify = defineCommand({
  name: 'verify',
  operands: {
    usage: '[ID|KEY | FILE.jsonl]',
    takes: 'one ID, KEY or FILE, or nothing',
    min: 0,
    max: 1,
  },
  summary:
    'Checks that logs have no gaps, that one turn runs at a time, and that every request has one ' +
    'end. Checks one session or all, of a running server or of a store; an exported log or ' +
    'transcript; a Claude Code transcript, for forks and several roots; or a recording of a ' +
    "browser client's traffic. In a store it also checks the checksums of events, and snapshots. " +
    'Changes nothing.',
  flags: VERIFY_FLAGS,
  async run(values, [name]) {
    let [logs, bad] = [0, 0]
    for await (const found of checkedLogs(values, name)) {
      const log = values.settled ? settled(found) : found
      logs += 1
      if (log.problems.length > 0) bad += 1
      if (values.json) printJson([log])
      else print(log)
    }
    if (!values.json) console.log(`${logs} checked, ${bad} bad`)
    return bad === 0 ? 0 : 1
  },
})

type CheckedLog = Findings & { readonly name: string; readonly key: string | null }

/** With `--settled`: every turn must have ended. */
function settled(log: CheckedLog): CheckedLog {
  const unsettled = log.pending.map((turn) => `turn ${turn} is not over`)
  return { ...log, problems: [...log.problems, ...unsettled] }
}

function checkedLogs(
  values: FlagValues<typeof VERIFY_FLAGS>,
  name: string | undefined,
): AsyncIterable<CheckedLog> {
  if (values.data !== null || values.store !== null) return verifyStore(values, name)
  const isFile = name !== undefined && existsSync(name) && statSync(name).isFile()
  return isFile ? verifyFile(name) : verifyRemote(new Remote(values), name)
}

function print({ name, key, events, turns, problems, pending }: CheckedLog): void {
  const shown = key === null ? name : `${name} ${printable(JSON.stringify(key))}`
  const open = pending.length === 0 ? '' : `, not over: ${pending.join(' ')}`
  const facts = `${events} events, ${turns} turns${open}`
  console.log(`${problems.length === 0 ? 'ok ' : 'BAD'}  ${shown}  ${facts}`)
  for (const problem of problems) console.log(`     ${printable(problem)}`)
}

async function* verifyRemote(remote: Remote, name?: string): AsyncGenerator<CheckedLog> {
  const all = name === undefined ? await collectSessions(remote, {}, Number.MAX_SAFE_INTEGER) : null
  const sessions = all ?? [{ id: await remote.find(name ?? ''), key: null }]
  for (const { id, key } of sessions) {
    const check = new LogCheck()
    for await (const event of remote.events(id)) check.add(event)
    yield { name: id, key, ...check.finish() }
  }
}

async function* verifyStore(
  values: FlagValues<typeof VERIFY_FLAGS>,
  name?: string,
): AsyncGenerator<CheckedLog> {
  const store = storeName(values)
  const logs = isPostgres(store) ? auditPostgres({ url: store }) : auditSqlite(storeFile(values))
  let found = 0
  for await (const log of logs) {
    const { id, key } = log.row
    if (name !== undefined && name !== id && name !== key) continue
    found += 1
    yield { name: id, key, ...(await checkStored(log)) }
  }
  if (name !== undefined && found === 0) throw new Error(`there is no session ${name} in the store`)
}

/** A line of a file of any kind that can be checked. */
type CheckedLine = Partial<
  ClaudeLine & CheckedEvent & CheckedMessage & Pick<RecordingLine, 'n' | 'from'>
>

async function* verifyFile(file: string): AsyncGenerator<CheckedLog> {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Infinity })
  const check = new FileCheck()
  for await (const line of lines) check.add(line)
  yield { name: file, key: null, ...check.finish() }
}

/** Checks a file; its first line of a known kind decides which kind of file it is. */
class FileCheck {
  readonly #torn: string[] = []
  #number = 0
  #check: { add(line: never, number: number): void; finish(): Findings } | null = null

  add(text: string): void {
    this.#number += 1
    if (text.trim() === '') return
    const line = parse(text)
    if (line === null) return void this.#torn.push(`line ${this.#number} is no JSON object`)
    this.#check ??= checkFor(line)
    // Claude Code also writes lines that are not part of the conversation.
    if (this.#check instanceof ClaudeCheck && typeof line.uuid !== 'string') return
    this.#check?.add(line as never, this.#number)
  }

  finish(): Findings {
    if (this.#check === null)
      throw new Error('this is not a log, transcript, Claude Code transcript or recording')
    const findings = this.#check.finish()
    return { ...findings, problems: [...this.#torn, ...findings.problems] }
  }
}

/** Null if it is no JSON object; the caller reports the line. */
function parse(text: string): CheckedLine | null {
  try {
    const line = JSON.parse(text) as unknown
    return typeof line === 'object' && line !== null ? line : null
  } catch {
    return null
  }
}

function checkFor(line: CheckedLine) {
  if (typeof line.uuid === 'string' && 'parentUuid' in line) return new ClaudeCheck()
  if (typeof line.n === 'number' && ('from' in line || 'dropped' in line))
    return new RecordingCheck()
  if (typeof line.seq !== 'number') return null
  if (typeof line.role === 'string' && line.type === undefined) return new TranscriptCheck()
  return typeof line.type === 'string' ? new LogCheck() : null
}
