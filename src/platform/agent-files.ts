/**
 * Files in folders that an agent writes to. At any moment it may put a link, a pipe or another
 * folder in the place of what is there, and this process may be allowed more than the agent is. So
 * what was opened counts, and not what is at its path.
 */
import { constants } from 'node:fs'
import { mkdtemp, open, readlink, realpath, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { isWithin } from './isolation.ts'

/** A file that is open for reading; null if it is none, or lies outside of these folders. */
export async function openWithin(
  path: string,
  folders: readonly string[],
): Promise<FileHandle | null> {
  const roots = await Promise.all(folders.map((folder) => realpath(folder)))
  // A pipe that nothing writes to would hold up a thread of this process for ever.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const place = await placeOf(file, path)
    if (roots.some((root) => isWithin(place, root)) && (await file.stat()).isFile()) return file
  } catch (error) {
    await file.close()
    throw error
  }
  await file.close()
  return null
}

/** Where an open file is. On systems that do not tell, its path is looked up again. */
function placeOf({ fd }: FileHandle, path: string): Promise<string> {
  return process.platform === 'linux' ? readlink(`/proc/self/fd/${fd}`) : realpath(path)
}

/**
 * Writes a file into a new folder in `folder`, so that it replaces nothing; returns its path. The
 * agent, which may run as another user, can read it.
 */
export async function attachFile(folder: string, name: string, data: Uint8Array): Promise<string> {
  const made = await mkdtemp(join(folder, 'attached-'))
  await writeInto(made, name, data)
  return join(made, name)
}

/** Throws if there is a link in the place of the folder. */
export async function writeInto(folder: string, name: string, data: Uint8Array): Promise<void> {
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants
  const opened = await open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  try {
    await opened.chmod(0o755)
    const place = process.platform === 'linux' ? `/proc/self/fd/${opened.fd}` : folder
    const file = await open(join(place, name), 'wx')
    try {
      await file.writeFile(data)
      await file.chmod(0o644)
    } finally {
      await file.close()
    }
  } finally {
    await opened.close()
  }
}
