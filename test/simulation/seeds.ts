/** Which seeds `npm test` runs: others whenever the sources change, and the same ones until then. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** What decides how a world goes. */
const SOURCES = ['src', 'test/simulation']
const SEEDS = 1_000_000_000

/** `SIMULATION_SEED` names it; else it follows from the sources. */
export function firstSeed(named = process.env['SIMULATION_SEED']): number {
  if (named === undefined) return seedOf(SOURCES.map((folder) => join(ROOT, folder)))
  const seed = Number(named)
  if (Number.isSafeInteger(seed) && seed >= 0) return seed
  throw new Error(`SIMULATION_SEED must be a whole number, not ${named}`)
}

/** A seed that follows from all files of these folders: their names and their texts. */
export function seedOf(folders: readonly string[]): number {
  const digest = createHash('sha256')
  for (const folder of folders) {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    for (const name of names.filter((each) => each.endsWith('.ts')).sort()) {
      const text = readFileSync(join(folder, name), 'utf8')
      digest.update(JSON.stringify([name.split(sep).join('/'), text]))
    }
  }
  return digest.digest().readUInt32BE() % SEEDS
}
