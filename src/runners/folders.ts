/** Where agents work: one folder for each session, never named by what a request says. */
import { createHash } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'

/** A session's working folder, made if need be. It is the agent's work, and never deleted. */
export async function sessionFolder(root: string, session: string): Promise<string> {
  const folder = join(root, folderName(session))
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return folder
  } catch (error) {
    // The turn fails with it, and its clients are told: no path.
    const { code } = error as NodeJS.ErrnoException
    throw new Error(`the agent's working folder cannot be made: ${code}`)
  }
}

/** An id may be the caller's own, so `..` is one too; a digest of it is a plain name. */
export function folderName(session: string): string {
  return createHash('sha256').update(session).digest('hex').slice(0, 32)
}
