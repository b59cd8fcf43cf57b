/**
 * The guard of the children: a small shell that learns which process groups there are. When this
 * process ends, however it does (`kill -9` too), the guard's input ends, and it kills what is left.
 */
import type { ChildProcess } from 'node:child_process'
import type { Writable } from 'node:stream'
import { startProcess } from './start.ts'
import { SERVER } from './stragglers.ts'

/** Signals of a terminal or a supervisor are meant for us: the guard has to be the last to go. */
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

class Guard {
  #shell: ChildProcess | null = null
  readonly #groups = new Set<number>()

  /** The group of this child is to be killed if this process ends before it. */
  watch(group: number): void {
    this.#groups.add(group)
    if (this.#shell === null) this.#start()
    else this.#tell(`watch ${group}`)
  }

  forget(group: number): void {
    if (this.#groups.delete(group)) this.#tell(`forget ${group}`)
    if (this.#groups.size > 0) return
    // Nothing is left to guard, and the next child starts a new one: it must not be taken for ours.
    this.#tell('leave')
    this.#shell?.stdin?.end()
    this.#shell = null
  }

  #start(): void {
    const shell = startProcess('/bin/sh', ['-c', SCRIPT, 'sh', SERVER], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: { PATH: '/usr/bin:/bin' },
    })
    // A shell that is lost is replaced by another, which is told everything anew.
    shell.on('error', () => this.#lost(shell))
    shell.on('exit', () => this.#lost(shell))
    const stdin = shell.stdin as (Writable & { unref?: () => void }) | null | undefined
    // Without descriptors left it has no pipe: the next child to be guarded tries again.
    if (stdin === undefined || stdin === null) return
    // It must not keep this process alive.
    shell.unref()
    stdin.unref?.()
    // So is one that does not listen.
    stdin.on('error', () => this.#lost(shell))
    this.#shell = shell
    for (const group of this.#groups) this.#tell(`watch ${group}`)
  }

  /** Somebody killed it. Without a shell on this machine there is no guard. */
  #lost(shell: ChildProcess): void {
    if (this.#shell !== shell) return
    this.#shell = null
    if (shell.pid !== undefined && this.#groups.size > 0) this.#start()
  }

  #tell(line: string): void {
    this.#shell?.stdin?.write(`${line}\n`)
  }
}

export const guard = new Guard()
