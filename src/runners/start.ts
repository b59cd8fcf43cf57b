/**
 * Starts a process, if there are descriptors for it. Where they run out half-way Node never gives
 * back those of the pipes that it had made, so one that cannot be started is not tried.
 */
import { ChildProcess, spawn, type SpawnOptions } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { devNull } from 'node:os'

/** What a start takes for a moment: five pipes with two ends each, and a few of its own. */
const NEEDED = 16

/**
 * Tells by its `error` event, with the code `EMFILE`, that there are none left: then it has no
 * pipes either.
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
  const tried: number[] = []
  try {
    while (tried.length < NEEDED) tried.push(openSync(devNull, 'r'))
    return true
  } catch {
    // Too few are left, which is the answer.
    return false
  } finally {
    for (const descriptor of tried) closeSync(descriptor)
  }
}
