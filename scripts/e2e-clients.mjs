/**
 * `npm run e2e:clients`: stock clients of OpenAI's API and of ACP, installed if they are missing,
 * against a server. Arguments go to vitest; `-t langchain` runs those of one.
 */
import { prepareAcpClients } from './acp-clients.mjs'
import { prepareOpenAiClients } from './openai-clients.mjs'
import { checkNode, endWithNpm, PACKAGE, prepare, runTool } from './prepare.mjs'

checkNode()
endWithNpm()
const isReady = await prepare([PACKAGE])
const openAi = isReady ? prepareOpenAiClients() : null
const acp = isReady ? prepareAcpClients() : null
const args = ['run', '--config', 'vitest.clients.config.ts', ...process.argv.slice(2)]
process.env.OPENAI_CLIENTS = openAi ?? ''
process.env.ACP_CLIENTS = acp ?? ''
process.exitCode = openAi !== null && acp !== null && (await runTool('vitest', args)) ? 0 : 1
