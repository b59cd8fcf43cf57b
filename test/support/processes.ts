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

/** Processes of a program that live under this home folder. Linux only, as the tests that use it. */
export function runningIn(home: string, program: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && isAlive(pid) && isIn(pid, home, program))
}

function isIn(pid: number, home: string, program: string): boolean {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
    const [command] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return command === program && environment.includes(`HOME=${home}`)
  } catch {
    return false
  }
}
