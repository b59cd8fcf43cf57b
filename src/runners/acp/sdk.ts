/** The protocol's library, loaded when the first agent starts: it is an optional dependency. */
import type * as sdk from '@agentclientprotocol/sdk'

export type Sdk = typeof sdk

export async function loadSdk(
  load: () => Promise<Sdk> = () => import('@agentclientprotocol/sdk'),
): Promise<Sdk> {
  try {
    return await load()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new Error(
      'agents that speak ACP need a package that is not installed; install it with: ' +
        'npm install @agentclientprotocol/sdk zod',
    )
  }
}
