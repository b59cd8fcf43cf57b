/** The store's folder, made if need be, for its owner alone. */
import { mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/** With what is missing above it. Node's own way never ends where a folder cannot be made. */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST' && isFolder(path)) return
    const above = dirname(path)
    if (code !== 'ENOENT' || isFolder(above)) throw error
    makeFolder(above)
    makeFolder(path)
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}
