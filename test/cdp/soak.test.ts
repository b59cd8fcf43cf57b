/**
 * Much traffic of every kind, and then the same again: nothing that the door holds has grown. The
 * number of round trips is `CDP_SOAK`, if that is set.
 */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { HeldConnection } from '../../src/cdp/index.ts'
import { census, type Census } from '../support/census.ts'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const ROUND_TRIPS = Number(process.env['CDP_SOAK'] ?? 500)
const IN_FLIGHT = 50

let server: CdpServer

beforeAll(async () => {
  server = await serveCdp()
})
afterAll(() => server.close())

async function roundTrips(client: RawCdp, sessionId: string, count: number): Promise<void> {
  for (let n = 0; n < count; n += IN_FLIGHT) {
    const asked = Array.from({ length: IN_FLIGHT }, () =>
      client.send('Runtime.evaluate', { expression: '1 + 1' }, sessionId),
    )
    await Promise.all(asked)
    client.messages.length = 0
  }
}

/** Pages, contexts, windows, sessions, refusals: each comes and goes. */
async function comeAndGo(client: RawCdp): Promise<void> {
  const { browserContextId } = await client.send('Target.createBrowserContext')
  const url = 'about:blank'
  const { targetId } = await client.send('Target.createTarget', { url, browserContextId })
  await client.send('Browser.getWindowForTarget', { targetId })
  for (let n = 0; n < 3; n += 1) {
    const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
    await client.send('Page.enable', {}, sessionId)
    await client.send('Target.detachFromTarget', { sessionId })
  }
  await client.ask('Target.attachToTarget', { targetId: 'nothing', flatten: true })
  await client.ask('Nothing.here')
  await client.send('Target.attachToTarget', { targetId, flatten: true })
  await client.send('Target.disposeBrowserContext', { browserContextId })
  client.messages.length = 0
}

/** Others that come, lose their connection, come back and leave. */
async function passersBy(): Promise<void> {
  const held = await HeldConnection.open(server.url)
  const replied = new Promise<void>((resolve) => {
    held.onMessage = () => resolve()
  })
  held.drop()
  held.send(JSON.stringify({ id: 1, method: 'Browser.getVersion' }))
  await replied
  held.close()
  const lost = await RawCdp.open(`${server.socketUrl}?key=soak`)
  lost.socket.terminate()
  await lost.closed
}

async function traffic(client: RawCdp, sessionId: string, times: number): Promise<void> {
  await roundTrips(client, sessionId, times * (ROUND_TRIPS / 4))
  for (let n = 0; n < times; n += 1) await comeAndGo(client)
  for (let n = 0; n < times; n += 1) await passersBy()
}

/** The client, its sessions and pages, and the place of the one that was lost. */
const QUIET = { sessions: 2, clients: 2, attached: 4, waiting: 0, pages: 3 }

/** What is held when the clients that left are gone here, and the browser has told of it. */
async function settled(client: RawCdp): Promise<Census> {
  await expect.poll(() => server.server.browserCounts()).toMatchObject(QUIET)
  // The browser answers in order: what it tells of sessions that ended came before this.
  await client.send('Browser.getVersion')
  client.messages.length = 0
  // The audit is written once a second.
  await expect.poll(() => census(server.server)).toMatchObject({ 'Audit.#waiting': 0 })
  return census(server.server)
}

it('holds no more after four times the traffic', async () => {
  const client = await RawCdp.open(server.socketUrl)
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  const auto = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }
  await client.send('Target.setDiscoverTargets', { discover: true })
  await client.send('Target.setAutoAttach', auto)
  await traffic(client, sessionId, 1)
  const before = await settled(client)
  await traffic(client, sessionId, 3)
  const after = await settled(client)
  expect(before).toMatchObject({ 'BrowserLink.#pending': 0, 'Uplink.#waiting': 0 })
  expect(after).toEqual(before)
  client.close()
}, 600_000)
