/**
 * Modules of the operator: configurations, and functions that are agents. Node keeps what it has
 * loaded for good, so a version of a file that changed since is loaded under another address. Its
 * own imports are not loaded again.
 */
import { stat } from 'node:fs/promises'
import { pathToFileURL } from 'node:url'
import type { HoldfastError } from '../core/index.ts'

/** By file, the first version that this process has loaded, as Node's own table has it. */
const firstVersions = new Map<string, string>()

/** `refuse` makes the error for a file that cannot be loaded. */
export async function importModule(file: string, refuse: (problem: string) => HoldfastError) {
  const version = await versionOf(file)
  const first = firstVersions.get(file) ?? version
  firstVersions.set(file, first)
  const { href } = pathToFileURL(file)
  const address = version === first ? href : `${href}?version=${version}`
  const loaded = await import(address).catch((error: Error) => {
    throw refuse(`cannot be loaded: ${error.message}`)
  })
  return loaded as Readonly<Record<string, unknown>>
}

/** One that is not there has none: importing it says so. */
async function versionOf(file: string): Promise<string> {
  try {
    const { ino, size, mtimeNs } = await stat(file, { bigint: true })
    return [ino, size, mtimeNs].join('-')
  } catch {
    return ''
  }
}
