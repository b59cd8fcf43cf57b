/** Agents in a sandbox on this machine: which user they need, and finding them from outside. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { isAlive } from './processes.ts'

export const isRoot = process.getuid?.() === 0

/** A server that runs as root has to name another user. */
export const asNobody = isRoot ? { runAs: { uid: 'nobody' } } : {}

/** What the options of an agent in bubblewrap are here; Node may be installed anywhere. */
export function sandboxed(...readOnly: readonly string[]) {
  const node = dirname(dirname(process.execPath))
  const shown = node.startsWith('/usr') ? readOnly : [node, ...readOnly]
  return { isolation: 'bubblewrap', readOnly: shown, ...asNobody } as const
}

/** Processes with this argument. A process of another pid namespace tells another pid itself. */
export function processesWith(argument: string): readonly number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && argumentsOf(pid).includes(argument) && isAlive(pid))
}

function argumentsOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    // It has ended meanwhile.
    return []
  }
}
