/**
 * The guard of the children: a shell that gets the list of their process groups on its stdin. When
 * this process ends in any way (`kill -9` too), that stdin ends, and the shell kills the groups.
 */
import type { ChildProcess } from 'node:child_process'
import type { Writable } from 'node:stream'
import { SERVER, startProcess } from './processes.ts'

/** It ignores the signals of a terminal or supervisor, since it has to outlive this process. */
const SCRIPT = `
trap '' HUP INT TERM
groups=' '
while read -r action group; do
  case $action in
    watch) groups="$groups$group " ;;
    leave) exit ;;
    forget) groups="\${groups%% $group *} \${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
for file in $(grep -ls "HOLDFAST_CHILD=[^:]*:$1:" /proc/[0-9]*/environ 2>/dev/null); do
  pid=\${file#/proc/}
  kill -s KILL "\${pid%/environ}"
done 2>/dev/null
`

class ChildGuard {
  #shell: ChildProcess | null = null
  readonly #groups = new Set<number>()

  /** The guard kills this process group if this process ends first. */
  watch(group: number): void {
    this.#groups.add(group)
    if (this.#shell === null) this.#start()
    else this.#write(`watch ${group}`)
  }

  forget(group: number): void {
    if (this.#groups.delete(group)) this.#write(`forget ${group}`)
    if (this.#groups.size > 0) return
    // The guard exits; the next child starts another one.
    this.#write('leave')
    this.#shell?.stdin?.end()
    this.#shell = null
  }

  #start(): void {
    const shell = startProcess('/bin/sh', ['-c', SCRIPT, 'sh', SERVER], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: { PATH: '/usr/bin:/bin' },
    })
    const stdin = shell.stdin as (Writable & { unref?: () => void }) | null | undefined
    // A shell that ended or does not read is replaced by another, which gets all groups.
    for (const source of [shell, stdin]) source?.on('error', () => this.#lost(shell))
    shell.on('exit', () => this.#lost(shell))
    // Without file descriptors it has no pipe; the next child tries again.
    if (stdin === undefined || stdin === null) return
    // It must not keep this process alive.
    shell.unref()
    stdin.unref?.()
    this.#shell = shell
    for (const group of this.#groups) this.#write(`watch ${group}`)
  }

  /** The shell was killed; on a machine without a shell there is no guard. */
  #lost(shell: ChildProcess): void {
    if (this.#shell !== shell) return
    this.#shell = null
    if (shell.pid !== undefined && this.#groups.size > 0) this.#start()
  }

  #write(line: string): void {
    this.#shell?.stdin?.write(`${line}\n`)
  }
}

export const guard = new ChildGuard()
