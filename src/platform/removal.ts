/** Removes what an agent has written. Symbolic links are removed, never followed. */
import { once } from 'node:events'
import { lstat, rm, rmdir } from 'node:fs/promises'
import type { User } from './isolation.ts'
import { startProcess } from './processes.ts'

/**
 * Removes a file or a folder, as far as possible; returns whether it is gone. Files of another user
 * are removed by a process of that user: while they are removed, its programs may put links in
 * their place, and must not make this process, which is root, remove anything else.
 */
export async function remove(path: string, user: User | null): Promise<boolean> {
  if (user === null) await rm(path, { recursive: true, force: true }).catch(() => undefined)
  else if (await isThere(path)) {
    await removeAs(user, path)
    // The parent of a session's folder belongs to this process; the folder is empty by now.
    await rmdir(path).catch(() => undefined)
  }
  return !(await isThere(path))
}

async function removeAs(user: User, path: string): Promise<void> {
  const env = { PATH: process.env['PATH'] }
  const child = startProcess('rm', ['-rf', '--', path], { ...user, env, cwd: '/', stdio: 'ignore' })
  // Its caller looks whether the files are gone.
  await Promise.race([once(child, 'exit'), once(child, 'error')]).catch(() => undefined)
}

export async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOENT'
  }
}
