/** Looking at processes from outside. */
import { readdirSync, readFileSync } from 'node:fs'

/** Whether it still runs; one that is dead and only waits to be reaped does not. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    if (process.platform !== 'linux') return true
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** Processes that live under this home folder. Linux only, as the tests that use it. */
export function allIn(home: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && contentOf(pid, 'environ').includes(`HOME=${home}`) && isAlive(pid))
}

/** Those of them that run this program. */
export function runningIn(home: string, program: string): number[] {
  return allIn(home).filter((pid) => contentOf(pid, 'cmdline')[0] === program)
}

function contentOf(pid: number, name: string): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8').split('\0')
  } catch {
    return []
  }
}

/** Whether nothing is left of it: its parent has heard of its end too. */
export function isReaped(pid: number): boolean {
  try {
    return !process.kill(pid, 0)
  } catch {
    return true
  }
}
