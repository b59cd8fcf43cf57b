/**
 * The children of tests: none outlives the process that started it, also when a hook timed out, a
 * test failed or the run was ended by hand. What guards the agents of a server guards them too.
 */
import { execFile, type ChildProcess, type ExecFileOptions } from 'node:child_process'
import { promisify } from 'node:util'
import { guard } from '../../src/platform/processes.ts'

/** What a child has to be started with: a group of its own, which is ended as a whole. */
export const GUARDED = { detached: true } as const

export function guarded<Child extends ChildProcess>(child: Child): Child {
  const { pid } = child
  if (pid === undefined) return child
  guard.watch(pid)
  child.once('exit', () => guard.forget(pid))
  return child
}

/** A program that runs to its end, or to this limit, and what it said. Its children go with it. */
export async function runGuarded(
  program: string,
  args: readonly string[],
  { limitMs, ...options }: ExecFileOptions & { readonly limitMs: number },
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const running = promisify(execFile)(program, args, { ...options, ...GUARDED, encoding: 'utf8' })
  const { pid } = guarded(running.child)
  const end = (): void => {
    try {
      if (pid !== undefined) process.kill(-pid, 'SIGKILL')
    } catch {
      // Nothing is left of it.
    }
  }
  const late = setTimeout(end, limitMs)
  try {
    return await running
  } finally {
    clearTimeout(late)
    end()
  }
}
