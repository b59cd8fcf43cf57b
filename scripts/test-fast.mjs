/**
 * `npm run test:fast`: installs and builds what is missing, then runs the tests that need nothing but
 * npm packages (vitest.fast.config.ts). Arguments go to vitest; `-- src/core` runs those of one folder.
 */
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const args = ['run', '--config', 'vitest.fast.config.ts', ...process.argv.slice(2)]
process.exitCode = (await prepare([PACKAGE])) && (await runTool('vitest', args)) ? 0 : 1
