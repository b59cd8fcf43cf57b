/**
 * Starts processes, and finds descendants that have left the process group of their child: programs
 * that an agent started with `setsid`, as Claude Code's shell tool does. They inherit a mark in
 * their environment, which Linux shows in `/proc`. Other systems show only the process group.
 */
import { ChildProcess, spawn, type SpawnOptions } from 'node:child_process'
import { hash, randomUUID } from 'node:crypto'
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { devNull } from 'node:os'
import type { Writable } from 'node:stream'

/** The descriptors that a spawn needs at most: five pipes with two ends, and a few more. */
const DESCRIPTORS_NEEDED = 16

/**
 * When descriptors run out during a spawn, Node leaks the pipes that it has already made. So
 * without enough of them nothing is spawned: the child has no pipes and emits `error` (`EMFILE`).
 */
export function startProcess(
  command: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  if (hasDescriptors()) return spawn(command, args, options)
  const child = new ChildProcess()
  const error = Object.assign(new Error('no file descriptors are left'), { code: 'EMFILE' })
  process.nextTick(() => child.emit('error', error))
  return child
}

function hasDescriptors(): boolean {
  const opened: number[] = []
  try {
    while (opened.length < DESCRIPTORS_NEEDED) opened.push(openSync(devNull, 'r'))
    return true
  } catch {
    // Too few are free.
    return false
  } finally {
    for (const descriptor of opened) closeSync(descriptor)
  }
}

/**
 * Children inherit what this process was started with, though not what it opens itself. It gives
 * up these descriptors, beyond stdio. The null device takes their numbers: if a part of Node does
 * use one, it must not write to the file that gets the number next.
 */
export function dropInheritedDescriptors(): void {
  const folder = '/proc/self/fd'
  const all = existsSync(folder) ? readdirSync(folder).map(Number) : []
  for (const fd of all.filter((one) => one > 2 && isInheritable(one))) {
    closeSync(fd)
    const opened: number[] = []
    try {
      // The system gives the lowest that is free.
      while (opened.at(-1) !== fd) opened.push(openSync(devNull, 'r'))
    } catch {
      // The number is beyond the limit of descriptors: no file gets it.
    }
    for (const one of opened) if (one !== fd) closeSync(one)
  }
}

/** `O_CLOEXEC`, as Linux shows it. */
const CLOSED_ON_EXEC = 0o2000000

function isInheritable(fd: number): boolean {
  try {
    const info = readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1')
    return (parseInt(/^flags:\s*(\d+)$/m.exec(info)?.[1] ?? '', 8) & CLOSED_ON_EXEC) === 0
  } catch {
    // It is closed again: the one that the folder was read with.
    return false
  }
}

/** The variable that marks a child: `FOLDER:SERVER:STARTER.CHILD`. */
export const MARK = 'HOLDFAST_CHILD'

/** Identifies this process. */
const SERVER = identityOf(process.pid)

/** Identifies a process: pids are used again, a pid with its start time is not. */
function identityOf(pid: number): string {
  return `${pid}.${startOf(pid) ?? randomUUID()}`
}

/** One process, which is killed only if its pid is not another's by now. */
export class KnownProcess {
  readonly pid: number
  readonly #identity: string

  constructor(pid: number) {
    this.pid = pid
    this.#identity = identityOf(pid)
  }

  kill(): void {
    if (!isRunning(this.#identity)) return
    try {
      process.kill(this.pid, 'SIGKILL')
    } catch {
      // It has ended meanwhile.
    }
  }
}

/** The name of a session's folder: a digest, since a caller can choose the id (`..` too). */
export function folderName(session: string): string {
  return hash('sha256', session).slice(0, 32)
}

/** A mark for a new child that works below this folder, and by which its starter finds it. */
export function markOf(folder: string, starter: string): string {
  return `${folderName(folder)}:${SERVER}:${starter}.${randomUUID()}`
}

/** Kills processes that servers on this folder left running when they ended. */
export function killOrphans(folder: string): Promise<number> {
  return killBelow(folder, (server) => server !== SERVER && !isRunning(server))
}

/** Kills processes that one starter of this server started in this folder. */
export function killOwn(folder: string, starter: string): Promise<number> {
  return killBelow(folder, (server, child) => server === SERVER && child.startsWith(`${starter}.`))
}

function killBelow(
  folder: string,
  isMatch: (server: string, child: string) => boolean,
): Promise<number> {
  return killMarked((mark) => {
    const [name, server = '', child = ''] = mark.split(':')
    return name === folderName(folder) && isMatch(server, child)
  })
}

/** Kills processes whose mark matches; resolves with their number. */
export async function killMarked(isMatch: (mark: string) => boolean): Promise<number> {
  let killed = 0
  for (const pid of await processes()) {
    const mark = await inheritedMark(pid)
    if (mark === null || !isMatch(mark) || pid === process.pid) continue
    try {
      process.kill(pid, 'SIGKILL')
      killed += 1
    } catch {
      // It has ended meanwhile.
    }
  }
  return killed
}

/**
 * The memory of a process group and of the processes with the mark, in bytes, without program
 * and file pages, which processes share; null where the system does not show it.
 */
export async function groupMemory(group: number, mark?: string) {
  let bytes: number | null = null
  for (const pid of await processes()) {
    const isMember = (await groupOf(pid)) === group
    if (!isMember && (mark === undefined || (await inheritedMark(pid)) !== mark)) continue
    bytes = (bytes ?? 0) + (await ownMemory(pid))
  }
  return bytes
}

/** NaN for a process that has ended. */
async function groupOf(pid: number): Promise<number> {
  const [, , group] = statFields(await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => ''))
  return Number(group)
}

/** 0 for a process that has ended. */
async function ownMemory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1').catch(() => '')
  const kilobytes = status.matchAll(/^Rss(?:Anon|Shmem):\s*(\d+) kB$/gm)
  return [...kilobytes].reduce((sum, [, digits]) => sum + Number(digits), 0) * 1_024
}

/** Whether the process still runs, and its pid is not another's. */
function isRunning(identity: string): boolean {
  const [pid = '', start = ''] = identity.split('.')
  return startOf(Number(pid)) === start
}

/** The start time of a process in clock ticks; null if it is unknown. */
function startOf(pid: number): string | null {
  try {
    return statFields(readFileSync(`/proc/${pid}/stat`, 'latin1'))[19] ?? null
  } catch {
    return null
  }
}

/** The fields after the name, which is in parentheses and may contain anything. */
function statFields(stat: string): readonly string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}

/** Empty where the system does not show them. */
async function processes(): Promise<readonly number[]> {
  if (process.platform !== 'linux') return []
  const names = await readdir('/proc').catch(() => [])
  return names.filter((name) => /^\d+$/.test(name)).map(Number)
}

/** Null for a process of another user, or one that has ended. */
async function inheritedMark(pid: number): Promise<string | null> {
  const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')
  const entry = environment.split('\0').find((variable) => variable.startsWith(`${MARK}=`))
  return entry?.slice(MARK.length + 1) ?? null
}

/**
 * The guard of the children is a shell that gets the list of their process groups on stdin, and of
 * the first processes of their sandboxes. When this process ends in any way (`kill -9` too), that
 * stdin ends, and the shell kills them. A group is a negative number, as in `kill(2)`. The shell
 * ignores the signals of a terminal or supervisor, since it has to outlive this process.
 */
const GUARD = `
trap '' HUP INT TERM
targets=' '
while read -r action target; do
  case $action in
    watch) targets="$targets$target " ;;
    leave) exit ;;
    forget) targets="\${targets%% $target *} \${targets#* $target }" ;;
  esac
done
for target in $targets; do kill -s KILL -- "$target"; done 2>/dev/null
for file in $(grep -ls "HOLDFAST_CHILD=[^:]*:$1:" /proc/[0-9]*/environ 2>/dev/null); do
  pid=\${file#/proc/}
  kill -s KILL "\${pid%/environ}"
done 2>/dev/null
`

class ChildGuard {
  #shell: ChildProcess | null = null
  readonly #targets = new Set<number>()

  /** The guard kills this process, or this group if negative, if the server ends first. */
  watch(target: number): void {
    this.#targets.add(target)
    if (this.#shell === null) this.#start()
    else this.#write(`watch ${target}`)
  }

  forget(target: number): void {
    if (this.#targets.delete(target)) this.#write(`forget ${target}`)
    if (this.#targets.size > 0) return
    // The guard exits; the next child starts another one.
    this.#write('leave')
    this.#shell?.stdin?.end()
    this.#shell = null
  }

  #start(): void {
    const shell = startProcess('/bin/sh', ['-c', GUARD, 'sh', SERVER], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: { PATH: '/usr/bin:/bin' },
    })
    const stdin = shell.stdin as (Writable & { unref?: () => void }) | null | undefined
    // A shell that ended or does not read is replaced by another, which gets all of them.
    for (const source of [shell, stdin]) source?.on('error', () => this.#lost(shell))
    shell.on('exit', () => this.#lost(shell))
    // Without file descriptors it has no pipe; the next child tries again.
    if (stdin === undefined || stdin === null) return
    // It must not keep this process alive.
    shell.unref()
    stdin.unref?.()
    this.#shell = shell
    for (const target of this.#targets) this.#write(`watch ${target}`)
  }

  /** The shell was killed; on a machine without a shell there is no guard. */
  #lost(shell: ChildProcess): void {
    if (this.#shell !== shell) return
    this.#shell = null
    if (shell.pid !== undefined && this.#targets.size > 0) this.#start()
  }

  #write(line: string): void {
    this.#shell?.stdin?.write(`${line}\n`)
  }
}

export const guard = new ChildGuard()
