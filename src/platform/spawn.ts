/**
 * Starts a process, if enough file descriptors are free. When they run out during a spawn, Node
 * leaks the pipes that it has already made, so a spawn that would fail is not attempted.
 */
import { ChildProcess, spawn, type SpawnOptions } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { devNull } from 'node:os'

/** The descriptors that a spawn needs at most: five pipes with two ends, and a few more. */
const NEEDED = 16

/** Without free descriptors the child has no pipes and emits `error` with the code `EMFILE`. */
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
    while (opened.length < NEEDED) opened.push(openSync(devNull, 'r'))
    return true
  } catch {
    // Too few are free.
    return false
  } finally {
    for (const descriptor of opened) closeSync(descriptor)
  }
}
