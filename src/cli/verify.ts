/** `holdfast verify`: proves logs and transcripts linear and complete. */
import { createReadStream, existsSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { auditPostgres } from '../stores/postgres/audit.ts'
import { auditSqlite } from '../stores/sqlite/audit.ts'
import { ClaudeCheck, type ClaudeLine } from './claude-check.ts'
import { UsageError, type Command, type Values } from './command.ts'
import { readLog } from './export.ts'
import { LogCheck, type Findings, type LoggedEvent } from './log-check.ts'
import { Remote, REMOTE_FLAGS, REMOTE_HELP } from './remote.ts'
import { collect, printable } from './sessions.ts'
import { isPostgres, STORE_FLAGS, storeFile, storeName } from './store-flags.ts'
import { checkStored } from './store-check.ts'
import { RecordingCheck, type Recorded } from './recording-check.ts'
import { TranscriptCheck, type Spoken } from './transcript-check.ts'

export const verify: Command = {
  name: 'verify',
  usage: 'verify [ID|KEY | FILE.jsonl] [--data DIR | --store STORE] [flags]',
  summary: [
    'Proves that logs have no gaps, one turn runs at a time, and every request has one end.',
    'Checks one session or all of them, on a running server or in a store; an exported log or',
    'transcript; a Claude Code transcript, for forks and several roots; or a recording of a',
    "browser client's traffic. In a store the checksums of events, and snapshots, are checked too.",
    'Changes nothing.',
  ].join('\n'),
  flags: {
    ...REMOTE_FLAGS,
    ...STORE_FLAGS,
    settled: { type: 'boolean' },
    json: { type: 'boolean' },
  },
  help: [
    ['--data DIR', "a store's folder, instead of a running server"],
    ['--store STORE', 'sqlite:FILE or postgres://…; servers may use it meanwhile'],
    ['--settled', 'a turn that is not over is a fault too'],
    ['--json', 'one JSON object per log, for programs'],
    ...REMOTE_HELP,
  ],
  run: verifyAll,
}

/** A log that was checked. */
type Verdict = Findings & { readonly name: string; readonly key: string | null }

async function verifyAll(values: Values, words: readonly string[]): Promise<number> {
  const [name, ...more] = words
  if (more.length > 0) throw new UsageError('verify takes one ID, KEY or FILE, or nothing')
  let [logs, bad] = [0, 0]
  for await (const found of verdicts(values, name)) {
    const verdict = values['settled'] === true ? settled(found) : found
    logs += 1
    if (verdict.problems.length > 0) bad += 1
    if (values['json'] === true) console.log(JSON.stringify(verdict))
    else print(verdict)
  }
  if (values['json'] !== true) console.log(`${logs} checked, ${bad} bad`)
  return bad === 0 ? 0 : 1
}

/** For a time when nothing runs: then every request must have its end. */
function settled(verdict: Verdict): Verdict {
  const unsettled = verdict.pending.map((turn) => `turn ${turn} is not over`)
  return { ...verdict, problems: [...verdict.problems, ...unsettled] }
}

function verdicts(values: Values, name: string | undefined): AsyncIterable<Verdict> {
  const isStore = values['data'] !== undefined || values['store'] !== undefined
  if (isStore) return verifyStore(values, name)
  const isFile = name !== undefined && existsSync(name) && statSync(name).isFile()
  return isFile ? verifyFile(name) : verifyRemote(new Remote(values), name)
}

function print({ name, key, events, turns, problems, pending }: Verdict): void {
  const shown = key === null ? name : `${name} ${printable(JSON.stringify(key))}`
  const open = pending.length === 0 ? '' : `, not over: ${pending.join(' ')}`
  const facts = `${events} events, ${turns} turns${open}`
  console.log(`${problems.length === 0 ? 'ok ' : 'BAD'}  ${shown}  ${facts}`)
  for (const problem of problems) console.log(`     ${printable(problem)}`)
}

async function* verifyRemote(remote: Remote, name?: string): AsyncGenerator<Verdict> {
  const all = name === undefined ? await collect(remote, {}, Number.MAX_SAFE_INTEGER) : null
  const sessions = all ?? [{ id: await remote.find(name ?? ''), key: null }]
  for (const { id, key } of sessions) {
    const check = new LogCheck()
    for await (const line of readLog(remote, id)) check.add(JSON.parse(line) as LoggedEvent)
    yield { name: id, key, ...check.finish() }
  }
}

async function* verifyStore(values: Values, name?: string): AsyncGenerator<Verdict> {
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

type Line = Partial<ClaudeLine & LoggedEvent & Spoken & Pick<Recorded, 'n' | 'from'>>

async function* verifyFile(file: string): AsyncGenerator<Verdict> {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Infinity })
  const reading = new Reading()
  for await (const line of lines) reading.add(line)
  yield { name: file, key: null, ...reading.finish() }
}

/** The lines of a file, of whichever kind its first telling line is. */
class Reading {
  readonly #torn: string[] = []
  #number = 0
  #check: { add(line: never, number: number): void; finish(): Findings } | null = null

  add(text: string): void {
    this.#number += 1
    if (text.trim() === '') return
    const line = parse(text)
    if (line === null) return void this.#torn.push(`line ${this.#number} is no JSON object`)
    this.#check ??= checkFor(line)
    // Claude Code writes lines that are no part of the conversation.
    if (this.#check instanceof ClaudeCheck && typeof line.uuid !== 'string') return
    this.#check?.add(line as never, this.#number)
  }

  finish(): Findings {
    if (this.#check === null)
      throw new Error('this is no log, transcript, Claude Code transcript or recording')
    const findings = this.#check.finish()
    return { ...findings, problems: [...this.#torn, ...findings.problems] }
  }
}

/** Null if it is no JSON object: then the line itself is the problem that is reported. */
function parse(text: string): Line | null {
  try {
    const line = JSON.parse(text) as unknown
    return typeof line === 'object' && line !== null ? line : null
  } catch {
    return null
  }
}

function checkFor(line: Line) {
  if (typeof line.uuid === 'string' && 'parentUuid' in line) return new ClaudeCheck()
  if (typeof line.n === 'number' && ('from' in line || 'dropped' in line))
    return new RecordingCheck()
  if (typeof line.seq !== 'number') return null
  if (typeof line.role === 'string' && line.type === undefined) return new TranscriptCheck()
  return typeof line.type === 'string' ? new LogCheck() : null
}
