/**
 * What the process group does not reach: a program that an agent started in a session of its own
 * (`setsid`), and that outlived a server which was killed. It has inherited a mark in its
 * environment, and on Linux that can be read. Elsewhere there is only the group.
 */
import { randomUUID } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { folderName } from './folders.ts'

/** The variable that marks a child: whose it is, and of which start of the server. */
const MARK = 'HOLDFAST_CHILD'

/** Tells the children of this process from those that an earlier one has left. */
const INSTANCE = randomUUID()

/** What marks the children that work under this folder. */
export function markOf(folder: string): Readonly<Record<string, string>> {
  return { [MARK]: `${folderName(folder)}:${INSTANCE}` }
}

/** Kills what an earlier server on this folder has left running. */
export function killOrphans(folder: string): Promise<number> {
  const own = markOf(folder)[MARK]
  return killMarked((mark) => mark.startsWith(`${folderName(folder)}:`) && mark !== own)
}

/** Kills what this server has started under this folder. */
export function killOwn(folder: string): Promise<number> {
  const own = markOf(folder)[MARK]
  return killMarked((mark) => mark === own)
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
 * What a process group takes of the memory, in bytes; null where that cannot be known. Without
 * programs and files, which its processes share.
 */
export async function groupMemory(group: number): Promise<number | null> {
  let bytes: number | null = null
  for (const pid of await processes()) {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
    // The name is in parentheses and may hold anything; what follows is numbers.
    const [, , own] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(own) === group) bytes = (bytes ?? 0) + (await ownMemory(pid))
  }
  return bytes
}

async function ownMemory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1').catch(() => '')
  const kilobytes = status.matchAll(/^Rss(?:Anon|Shmem):\s*(\d+) kB$/gm)
  return [...kilobytes].reduce((sum, [, digits]) => sum + Number(digits), 0) * 1_024
}

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
