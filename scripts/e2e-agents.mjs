/**
 * `npm run e2e:agents`: installs what is missing of the machine and the real agents, then runs the tests of all of them
 * against the stub model. Arguments go to vitest; `-t codex` runs those of one.
 */
import { AGENT_NAMES, prepareAgents } from './agents.mjs'
import { prepareCopilotSdk } from './copilot-sdk.mjs'
import { prepareMachine } from './machine.mjs'
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const isPrepared = (await prepare([PACKAGE])) && prepareMachine()
const ready = isPrepared && prepareAgents(AGENT_NAMES) && prepareCopilotSdk() !== null
const args = ['run', '--config', 'vitest.agents.config.ts', ...process.argv.slice(2)]
process.exitCode = ready && (await runTool('vitest', args)) ? 0 : 1
