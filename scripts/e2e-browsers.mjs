/**
 * `npm run e2e:browsers`: what takes too long for `npm test` of the tests with browsers. Arguments go
 * to vitest.
 */
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const ready = await prepare([PACKAGE])
const args = ['run', '--config', 'vitest.browsers.config.ts', ...process.argv.slice(2)]
process.exitCode = ready && (await runTool('vitest', args)) ? 0 : 1
