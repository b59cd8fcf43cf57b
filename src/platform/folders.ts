/** The working folders of agents: one per session, with names that no request can choose. */
import { createHash } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'

/** A session's working folder, created if missing. It has the agent's work; nothing deletes it. */
export async function sessionFolder(root: string, session: string): Promise<string> {
  const folder = join(root, folderName(session))
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return folder
  } catch (error) {
    // The turn fails with this message, which clients see: it must not contain the path.
    const { code } = error as NodeJS.ErrnoException
    throw new Error(`the agent's working folder cannot be created: ${code}`)
  }
}

/** A caller can choose the id (`..` too), so the name is a digest of it. */
export function folderName(session: string): string {
  return createHash('sha256').update(session).digest('hex').slice(0, 32)
}
