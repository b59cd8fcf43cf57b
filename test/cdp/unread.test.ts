/** Many who do not read, or are away, have a bound together too: who has left the most goes. */
import { afterEach, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import type { TestServerOptions } from '../support/server.ts'
import { RawCdp } from '../support/raw-cdp.ts'
import { RawHeld } from '../support/raw-held.ts'

let server: CdpServer

afterEach(() => server.close())

async function start(cdpLimits: TestServerOptions['cdpLimits']): Promise<void> {
  server = await serveCdp({ cdpLimits: { pingMs: 60, ...cdpLimits } })
}

async function pageOf(client: RawCdp): Promise<string> {
  const { targetId } = await client.send('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await client.send('Target.attachToTarget', { targetId, flatten: true })
  return sessionId
}

it('who does not read goes before what waits for all of them fills the memory', async () => {
  await start({ unreadTotalBytesMax: 20_000_000 })
  const [other, ...deaf] = await Promise.all(
    Array.from({ length: 4 }, () => RawCdp.open(server.socketUrl)),
  )
  for (const client of deaf) {
    const sessionId = await pageOf(client)
    client.socket.pause()
    const params = { expression: `'x'.repeat(16e6)`, returnByValue: true }
    client.say(JSON.stringify({ id: 99, method: 'Runtime.evaluate', params, sessionId }))
  }
  // Each is far below its own bound.
  await expect.poll(async () => (await server.server.browserCounts())?.clients).toBeLessThan(4)
  expect((await other!.send('Browser.getVersion')).product).toMatch(/Chrome/)
  for (const { socket } of deaf) socket.terminate()
  other!.close()
})

/** A client that is lost, and misses so many characters. */
async function absent(chars: number) {
  const { socket, welcome } = await RawHeld.open(`${server.socketUrl}/held`)
  const sessionId = await pageOf(socket)
  await socket.send('Runtime.enable', {}, sessionId)
  const expression = `setTimeout(() => console.log('x'.repeat(${chars})), 200)`
  await socket.send('Runtime.evaluate', { expression }, sessionId)
  socket.socket.terminate()
  const { session, attachment, token } = welcome
  return { session: String(session), attachment, token, received: 0 }
}

it('who has missed the most goes before what is kept for all of them does', async () => {
  await start({ heldTotalBytesMax: 300_000 })
  const [much, little] = [await absent(250_000), await absent(100_000)]
  for await (const event of server.holdfast.session(much.session).events()) {
    if (event.type === 'attachment.ended') break
  }
  const url = `${server.socketUrl}/held`
  expect(await RawHeld.dial(url, much)).toMatchObject({ type: 'refuse', code: 'too_slow' })
  const back = await RawHeld.open(url, little)
  expect(back.welcome['type']).toBe('welcome')
  const told = await back.socket.until(({ method }) => method === 'Runtime.consoleAPICalled')
  expect(told['params'].args[0].value).toHaveLength(100_000)
  back.socket.close()
})
