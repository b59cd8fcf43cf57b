/** The connect door behind a bare HTTP server, so that a test can look into its hub. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Holdfast } from '../../src/core/index.ts'
import { Hub } from '../../src/doors/connect/hub.ts'
import type { ConnectLimits } from '../../src/doors/connect/hub.ts'
import { builtinAgents, openHoldfast } from '../../src/open.ts'
import { acceptSockets } from '../../src/server/upgrade.ts'
import type { Agent } from '../../src/runners/function.ts'
import { until } from './gate.ts'
import { Puppet } from './puppet.ts'

export type HubServer = {
  readonly hub: Hub
  readonly holdfast: Holdfast
  readonly puppet: Puppet
  readonly url: string
  /** When all clients are gone: throws if anything of these sessions is left. */
  assertNothingLeft(sessions: Iterable<string>): Promise<void>
  close(): Promise<void>
}

export async function serveHub(
  limits: Partial<ConnectLimits> = {},
  agents: Record<string, Agent> = {},
): Promise<HubServer> {
  const puppet = new Puppet()
  const all = { ...builtinAgents, puppet: puppet.agent, ...agents }
  const holdfast = await openHoldfast({ store: 'memory:', agents: all })
  const hub = new Hub({ holdfast, limits })
  const server = createServer()
  const access = { addressOf: () => '127.0.0.1', isForwarded: () => false }
  server.on('upgrade', acceptSockets(hub, access))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    hub,
    holdfast,
    puppet,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async assertNothingLeft(sessions) {
      await until(() => hub.count === 0)
      for (const id of sessions) await until(async () => isIdle(holdfast, id))
    },
    async close() {
      await holdfast.close()
      hub.close()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** No client is attached or follows, nothing runs or waits; a closed one is not held at all. */
async function isIdle(holdfast: Holdfast, id: string): Promise<boolean> {
  const { closed } = await holdfast.session(id).state()
  return closed !== null || (await holdfast.authority.open(id)).idle
}
