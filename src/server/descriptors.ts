/**
 * How many file descriptors the system gives this process, and how many connections that is good
 * for. Node raises the limit that can be raised by itself.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { invalid } from '../core/index.ts'
import { SERVER_LIMITS } from './limits.ts'

/** Infinity where the system sets none, or does not tell. */
export function descriptorLimit(): number {
  try {
    const text =
      process.platform === 'linux'
        ? /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
        : execFileSync('/bin/sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim()
    const limit = Number(text)
    return Number.isInteger(limit) && limit > 0 ? limit : Infinity
  } catch {
    // A system without such a limit, or one that does not tell it.
    return Infinity
  }
}

/**
 * A part of the descriptors is kept back for the store, agents, browsers and calls to others. On
 * many nodes a connection may need a second one, to the node that its request is forwarded to.
 */
export function connectionsFor(limit: number, isClustered: boolean): number {
  const { connectionsMax, descriptorsMin, descriptorsKept } = SERVER_LIMITS
  if (limit < descriptorsMin) {
    const why = `the system allows ${limit} open files`
    throw invalid('connections', `need ${descriptorsMin} file descriptors at least: ${why}`)
  }
  const left = limit - Math.min(descriptorsKept, limit / 2)
  return Math.min(connectionsMax, Math.floor(isClustered ? left / 2 : left))
}
