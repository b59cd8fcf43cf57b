/** A server that is about to stop, and has nobody to pass clients of browsers on to. */
import type { IncomingMessage } from 'node:http'
import { expect, it } from 'vitest'
import { serveCdp } from '../support/cdp-server.ts'
import { gate, until } from '../support/gate.ts'
import { RawCdp } from '../support/raw-cdp.ts'

it('refuses them with 503 and Retry-After, by socket and by /json, and starts no browser', async () => {
  const over = gate()
  const server = await serveCdp({ agents: { held: () => over.opened } })
  const turn = (await server.holdfast.resolve()).turn('work')
  await turn.admission
  const closing = server.server.close({ drainMs: 60_000, closeHoldfast: true })
  await until(() => server.holdfast.authority.draining)
  for (const rest of ['', '?key=late', '/held?key=late']) {
    const { socket } = new RawCdp(`${server.socketUrl}${rest}`)
    const { statusCode, headers } = await new Promise<IncomingMessage>((resolve) => {
      socket.on('unexpected-response', (_, response) => resolve(response))
    })
    expect([statusCode, Number(headers['retry-after']) > 0]).toEqual([503, true])
    socket.terminate()
  }
  const { status, headers } = await fetch(`${server.url}/json/version`)
  expect([status, Number(headers.get('retry-after')) > 0]).toEqual([503, true])
  expect((await server.server.browserCounts())?.browsers).toBe(0)
  over.open()
  await turn
  await closing
})
