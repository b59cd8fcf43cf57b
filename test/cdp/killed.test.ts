/** Client processes that are killed in the middle of their work. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { GUARDED, guarded } from '../support/guarded.ts'
import { serveCdp, Site, type CdpServer } from '../support/cdp-server.ts'
import { RawCdp } from '../support/raw-cdp.ts'

const CLIENT = fileURLToPath(new URL('../support/busy-client.mjs', import.meta.url))

let server: CdpServer
let site: Site

beforeAll(async () => {
  site = await new Site().start()
  server = await serveCdp()
})
afterAll(async () => {
  await server.close()
  await site.close()
})

/** Resolves when the client is in the middle of its work. */
async function busyClient(library: string, address: string): Promise<ChildProcess> {
  const args = [CLIENT, library, address, site.url]
  const child = guarded(
    spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], ...GUARDED }),
  )
  for await (const line of createInterface({ input: child.stdout })) {
    if (line === 'round 3') return child
  }
  throw new Error(`${library} ended before it was killed`)
}

/** Resolves at the first event of this type in the session's log. */
async function logged(session: string, type: string): Promise<void> {
  for await (const event of server.holdfast.session(session).events()) {
    if (event.type === type) return
  }
  throw new Error(`${type} never came`)
}

const LIBRARIES = ['Puppeteer', 'Playwright']

it('killed clients leave their pages for the grace time, then nothing, and harm nobody', async () => {
  const other = await RawCdp.open(server.socketUrl)
  const { targetId } = await other.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await other.send('Target.attachToTarget', { targetId, flatten: true })
  const before = await server.server.browserCounts()
  const policy = 'reconnect=resume&graceMs=5000'
  const start = (library: string) =>
    busyClient(library, `${server.socketUrl}?key=${library}&${policy}`)
  const children = await Promise.all(LIBRARIES.map(start))
  const { sessions } = await server.holdfast.list({ state: 'open' })
  const ids = sessions.flatMap(({ id, key }) => (key === null ? [] : [id]))
  expect(ids).toHaveLength(LIBRARIES.length)
  const exits = children.map((child) => once(child, 'exit'))
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(exits)
  await Promise.all(ids.map((id) => logged(id, 'attachment.detached')))
  expect((await server.server.browserCounts())?.pages).toBe((before?.pages ?? 0) + 6)
  const during = await other.send('Runtime.evaluate', { expression: '6 * 7' }, sessionId)
  expect(during.result.value).toBe(42)
  await Promise.all(ids.map((id) => logged(id, 'session.closed')))
  await expect.poll(() => server.server.browserCounts()).toEqual(before)
  const after = await other.send('Runtime.evaluate', { expression: '6 * 8' }, sessionId)
  expect(after.result.value).toBe(48)
  other.close()
  await expect
    .poll(() => server.server.browserCounts())
    .toEqual({ browsers: 1, sessions: 0, clients: 0, attached: 0, waiting: 0, pages: 0 })
})
