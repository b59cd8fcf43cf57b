/**
 * Packages that tests use and that are too large to be dependencies: installed from npm, without
 * their install scripts, into a folder of their own, where they stay from one run to the next.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** True if all of them are there in these versions, or could be installed; `flags` are npm's. */
export function prepareFolder(folder, dependencies, flags = []) {
  const wanted = `${JSON.stringify({ private: true, dependencies }, null, 2)}\n`
  const path = join(folder, 'package.json')
  const names = Object.keys(dependencies)
  const isThere = names.every((name) => existsSync(join(folder, 'node_modules', name)))
  if (isThere && readFileSync(path, 'utf8') === wanted) return true
  console.log(`installing ${names.join(', ')} …`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(path, wanted)
  const args = [
    'install',
    '--ignore-scripts',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
    ...flags,
  ]
  const { status, stderr } = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' })
  if (status !== 0) console.log(stderr)
  return status === 0
}
