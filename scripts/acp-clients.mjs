/** A stock client of the Agent Client Protocol, in `.agents/acp-clients-20` or `-22`. */
import { join } from 'node:path'
import { prepareFolder } from './npm-folder.mjs'
import { ROOT } from './prepare.mjs'

/** The newest versions that run on a Node, by the first major version of Node that they need. */
export const CLIENTS = {
  20: { acpx: '0.1.15' },
  22: { acpx: '0.19.1' },
}

/** The folder of this Node's client if it is there, or could be installed; null if not. */
export function prepareAcpClients() {
  const since = Number(process.versions.node.split('.')[0]) >= 22 ? 22 : 20
  const folder = join(ROOT, '.agents', `acp-clients-${since}`)
  return prepareFolder(folder, CLIENTS[since]) ? folder : null
}
