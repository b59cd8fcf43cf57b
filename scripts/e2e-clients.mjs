/**
 * `npm run e2e:clients`: stock clients of OpenAI's API, installed if they are missing, against a
 * server. Arguments go to vitest; `-t langchain` runs those of one.
 */
import { prepareOpenAiClients } from './openai-clients.mjs'
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const folder = (await prepare([PACKAGE])) ? prepareOpenAiClients() : null
const args = ['run', '--config', 'vitest.clients.config.ts', ...process.argv.slice(2)]
process.env.OPENAI_CLIENTS = folder ?? ''
process.exitCode = folder !== null && (await runTool('vitest', args)) ? 0 : 1
