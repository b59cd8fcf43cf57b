/**
 * What a kill cannot see: whether an acknowledgement leaves before its commit is on disk. strace shows
 * every write to the store's WAL, every sync and every answer to a client, in order.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ServerProcess } from '../support/server-process.ts'

export type SyncReport = {
  /** Answers that told a caller that its turn is done. */
  readonly acknowledged: number
  readonly syncs: number
  /** Those that left before the turn's last message was synced. */
  readonly early: readonly string[]
}

const CALLS = 'fdatasync,fsync,pwrite64,write,writev,sendto,sendmsg'
const NONCE = /trace-\d+-/g

/** Runs so many turns on the real server under strace, and reads the trace. */
export async function traceSyncs(turns: number): Promise<SyncReport> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-trace-'))
  try {
    return judgeTrace(await recordTrace(folder, turns))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

export async function recordTrace(folder: string, turns: number): Promise<readonly string[]> {
  const file = join(folder, 'trace')
  // `-D`: the server is our own child, and the signal that stops it reaches it.
  const under = ['strace', '-D', '-f', '-y', '-s', '6000', '-e', `trace=${CALLS}`, '-o', file]
  const server = await ServerProcess.start({ data: join(folder, 'data'), under })
  let next = 0
  const call = async (): Promise<void> => {
    while (next < turns) {
      next += 1
      await postTurn(server.url, `key-${next % 5}`, `trace-${next}-`)
    }
  }
  await Promise.all(Array.from({ length: 8 }, call))
  await server.stop()
  for (;;) {
    const trace = await readFile(file, 'latin1')
    // strace itself ends a little later than what it traces.
    if (trace.trimEnd().endsWith('+++')) return trace.split('\n')
  }
}

export async function postTurn(url: string, key: string, input: string): Promise<Response> {
  const response = await fetch(`${url}/v1/keys/${key}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input }),
  })
  await response.clone().text()
  return response
}

/** Reads a trace in order: written, then synced, then told. */
export function judgeTrace(lines: readonly string[]): SyncReport {
  const written = new Set<string>()
  const synced = new Set<string>()
  /** What each thread's sync under way covers: all that was written when it began. */
  const syncing = new Map<string, readonly string[]>()
  const early: string[] = []
  let acknowledged = 0
  let syncs = 0
  for (const line of lines) {
    const thread = line.split(' ', 1)[0] ?? ''
    if (isWalWrite(line)) for (const nonce of messagesIn(line)) written.add(nonce)
    if (isSyncBegin(line)) syncing.set(thread, [...written])
    if (isSyncEnd(line)) {
      syncs += 1
      for (const nonce of syncing.get(thread) ?? []) synced.add(nonce)
      syncing.delete(thread)
    }
    for (const nonce of answeredIn(line)) {
      acknowledged += 1
      if (!synced.has(nonce)) early.push(`${nonce} was answered before it was synced`)
    }
  }
  return { acknowledged, syncs, early }
}

const isWalWrite = (line: string): boolean => /pwrite64\(\d+<[^>]*-wal>/.test(line)
const isSyncBegin = (line: string): boolean => /f(?:data)?sync\(\d+<[^>]*-wal>/.test(line)
const isSyncEnd = (line: string): boolean =>
  /f(?:data)?sync(?:\(\d+<[^>]*-wal>\)| resumed>\)) += 0/.test(line)

/** The turns whose answer is on the page that is written. */
function messagesIn(line: string): readonly string[] {
  const messages = line.matchAll(/\\"role\\":\\"assistant\\",\\"text\\":\\"(trace-\d+-)/g)
  return [...messages].map(([, nonce]) => nonce ?? '')
}

function answeredIn(line: string): readonly string[] {
  if (!/(?:write|writev|sendto|sendmsg)\(\d+<(?:TCP|socket)/.test(line)) return []
  return line.includes('HTTP/1.1 200') ? [...new Set(line.match(NONCE) ?? [])] : []
}
