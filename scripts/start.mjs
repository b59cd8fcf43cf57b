/**
 * `npm start`: installs and builds what is missing, then runs `holdfast serve` with all arguments.
 * The server runs in this very process, so signals and the exit code are its own.
 */
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { checkNode, endWithNpm, PACKAGE, prepare, ROOT } from './prepare.mjs'

checkNode()
endWithNpm()
const args = process.argv.slice(2)
if (!(await prepare([PACKAGE], { quiet: args.includes('--quiet') }))) process.exit(1)

const main = join(ROOT, 'dist/cli/main.js')
process.argv = [process.argv[0], main, 'serve', ...args]
await import(pathToFileURL(main).href)
