/**
 * `npm run e2e:browsers`: stock tools that drive browsers, each installed if it is missing, and what
 * takes too long for `npm test` of the tests with browsers. Arguments go to vitest.
 */
import { prepareBrowserTools } from './browser-tools.mjs'
import { prepareMachine } from './machine.mjs'
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const isPrepared = (await prepare([PACKAGE])) && prepareMachine({ withDriver: true })
const ready = isPrepared && prepareBrowserTools()
const args = ['run', '--config', 'vitest.browsers.config.ts', ...process.argv.slice(2)]
process.exitCode = ready && (await runTool('vitest', args)) ? 0 : 1
