/** The CPU of a process and of all that it has started: a peer may be several programs. */
import { readdirSync, readFileSync } from 'node:fs'

/** A tick of `/proc`, on every Linux that Node runs on. */
const TICK_MICROS = 10_000

type Process = { readonly pid: number; readonly parent: number; readonly ticks: number }

/** 0 where there is no `/proc`. */
export function cpuMicrosOf(pid: number): number {
  const all = processes()
  const family = new Set([pid])
  // A child may have a smaller number than its parent: until no more are found.
  for (let size = 0; size < family.size;) {
    size = family.size
    for (const one of all) if (family.has(one.parent)) family.add(one.pid)
  }
  const own = all.filter((one) => family.has(one.pid))
  return own.reduce((sum, { ticks }) => sum + ticks, 0) * TICK_MICROS
}

function processes(): readonly Process[] {
  try {
    return readdirSync('/proc').flatMap((name) => (/^\d+$/.test(name) ? read(Number(name)) : []))
  } catch {
    return []
  }
}

/** Nothing if it has ended meanwhile. */
function read(pid: number): readonly Process[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name, in brackets, may have spaces; behind it: state, parent, and from the twelfth on the times.
    const fields = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number)
    const [, parent = 0] = fields
    return [{ pid, parent, ticks: (fields[11] ?? 0) + (fields[12] ?? 0) }]
  } catch {
    return []
  }
}
