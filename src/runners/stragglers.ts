/**
 * What the process group does not reach: a program that an agent started in a session of its own
 * (`setsid`, as Claude Code's shell tool does). It has inherited a mark in its environment, and on
 * Linux that can be read. Elsewhere there is only the group.
 */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { folderName } from './folders.ts'

/** The variable that marks a child: `FOLDER:SERVER:CHILD`. */
const MARK = 'HOLDFAST_CHILD'

/** This process among all that there were and will be: a number is used again, a start is not. */
export const SERVER = `${process.pid}.${startOf(process.pid) ?? randomUUID()}`

/** What marks the children that work under this folder. */
export function markOf(folder: string): Readonly<Record<string, string>> {
  return { [MARK]: `${folderName(folder)}:${SERVER}` }
}

/** The same environment with a mark for this child alone, and that mark; null without one. */
export function markedFor(env: Readonly<Record<string, string>>): {
  readonly env: Record<string, string>
  readonly mark: string | null
} {
  const shared = env[MARK]
  if (shared === undefined) return { env: { ...env }, mark: null }
  const mark = `${shared}:${randomUUID()}`
  return { env: { ...env, [MARK]: mark }, mark }
}

/** Kills what servers on this folder that are gone have left running. */
export function killOrphans(folder: string): Promise<number> {
  return killMarked((mark) => {
    const [name, server = ''] = mark.split(':')
    return name === folderName(folder) && server !== SERVER && !isRunning(server)
  })
}

/** Kills what this server has started under this folder. */
export function killOwn(folder: string): Promise<number> {
  const own = markOf(folder)[MARK]
  return killMarked((mark) => mark === own || mark.startsWith(`${own}:`))
}

/** Kills what one child has started, wherever it went. */
export function killFamily(mark: string): Promise<number> {
  return killMarked((own) => own === mark)
}

/** Kills what carries a mark that `isOurs` knows; resolves with how many that were. */
async function killMarked(isOurs: (mark: string) => boolean): Promise<number> {
  let killed = 0
  for (const pid of await processes()) {
    const mark = await inheritedMark(pid)
    if (mark === null || !isOurs(mark) || pid === process.pid) continue
    try {
      process.kill(pid, 'SIGKILL')
      killed += 1
    } catch {
      // It ended by itself meanwhile.
    }
  }
  return killed
}

/**
 * What a process group takes of the memory, and all that carries the mark with it, in bytes; null
 * where that cannot be known. Without programs and files, which processes share.
 */
export async function groupMemory(
  group: number,
  mark: string | null = null,
): Promise<number | null> {
  let bytes: number | null = null
  for (const pid of await processes()) {
    const isMember = (await groupOf(pid)) === group
    if (!isMember && (mark === null || (await inheritedMark(pid)) !== mark)) continue
    bytes = (bytes ?? 0) + (await ownMemory(pid))
  }
  return bytes
}

/** Not a number for a process that is gone. */
async function groupOf(pid: number): Promise<number> {
  const [, , group] = statFields(await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => ''))
  return Number(group)
}

/** 0 for a process that is gone. */
async function ownMemory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1').catch(() => '')
  const kilobytes = status.matchAll(/^Rss(?:Anon|Shmem):\s*(\d+) kB$/gm)
  return [...kilobytes].reduce((sum, [, digits]) => sum + Number(digits), 0) * 1_024
}

/** Whether the process of that number is still the one that had it. */
function isRunning(server: string): boolean {
  const [pid = '', start = ''] = server.split('.')
  return startOf(Number(pid)) === start
}

/** When a process was started, in the system's own count; null where that cannot be known. */
function startOf(pid: number): string | null {
  try {
    return statFields(readFileSync(`/proc/${pid}/stat`, 'latin1'))[19] ?? null
  } catch {
    return null
  }
}

/** The name is in parentheses and may hold anything; what follows is numbers. */
function statFields(stat: string): readonly string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/** None where they cannot be seen. */
async function processes(): Promise<readonly number[]> {
  if (process.platform !== 'linux') return []
  const names = await readdir('/proc').catch(() => [])
  return names.filter((name) => /^\d+$/.test(name)).map(Number)
}

/** Null for a process that is another user's, or gone. */
async function inheritedMark(pid: number): Promise<string | null> {
  const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')
  const entry = environment.split('\0').find((variable) => variable.startsWith(`${MARK}=`))
  return entry?.slice(MARK.length + 1) ?? null
}
