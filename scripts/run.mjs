/**
 * `node scripts/run.mjs test/simulation/main ...args`: installs and builds what is missing, then
 * runs a program of test/ or bench/ in this process.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { checkNode, endWithNpm, PACKAGE, prepare, PROGRAMS, ROOT } from './prepare.mjs'

checkNode()
endWithNpm()
const [name = '', ...args] = process.argv.slice(2)
if (!existsSync(join(ROOT, `${name}.ts`))) {
  console.error(`There is no ${name}.ts. Usage: node scripts/run.mjs test/simulation/main [args]`)
  process.exit(2)
}
if (!(await prepare([PACKAGE, PROGRAMS]))) process.exit(1)

const main = join(ROOT, '.build', `${name}.js`)
process.argv = [process.argv[0], main, ...args]
await import(pathToFileURL(main).href)
