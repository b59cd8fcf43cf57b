/** Stock clients of OpenAI's API, in `.agents/openai-clients-20` or `-22`. */
import { join } from 'node:path'
import { prepareFolder } from './npm-folder.mjs'
import { ROOT } from './prepare.mjs'

/** The newest versions that run on a Node, by the first major version of Node that they need. */
export const CLIENTS = {
  20: {
    openai: '6.49.0',
    ai: '6.0.326',
    '@ai-sdk/openai': '3.0.141',
    '@ai-sdk/openai-compatible': '2.0.87',
    '@langchain/core': '1.2.13',
    '@langchain/openai': '1.4.7',
    '@openai/agents': '0.20.0',
    zod: '4.1.12',
  },
  22: {
    openai: '7.55.0',
    ai: '7.0.173',
    '@ai-sdk/openai': '4.0.118',
    '@ai-sdk/openai-compatible': '3.0.92',
    '@langchain/core': '1.2.13',
    '@langchain/openai': '1.6.0',
    '@openai/agents': '0.20.0',
    zod: '4.1.12',
  },
}

/** The folder of this Node's clients if they are there, or could be installed; null if not. */
export function prepareOpenAiClients() {
  const since = Number(process.versions.node.split('.')[0]) >= 22 ? 22 : 20
  const folder = join(ROOT, '.agents', `openai-clients-${since}`)
  return prepareFolder(folder, CLIENTS[since]) ? folder : null
}
