/** How much of the disk a browser uses. */
import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'

/** The bytes of all files in a folder; 0 if it is not there. */
export async function folderBytes(folder: string): Promise<number> {
  // It is being removed, or was never made.
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  let bytes = 0
  for (const entry of entries) {
    const path = join(folder, entry.name)
    bytes += entry.isDirectory() ? await folderBytes(path) : await fileBytes(path)
  }
  return bytes
}

/** What it takes on the disk: a file may be longer than what was written to it. */
async function fileBytes(path: string): Promise<number> {
  // It has been removed meanwhile.
  const { blocks } = await lstat(path).catch(() => ({ blocks: 0 }))
  return blocks * 512
}
