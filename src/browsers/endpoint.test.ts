import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { WebSocketServer, type WebSocket } from 'ws'
import { connectEndpoint } from './endpoint.ts'
import { BROWSER_LIMITS } from './limits.ts'

let server: WebSocketServer

afterEach(() => {
  for (const socket of server.clients) socket.terminate()
  server.close()
})

/** A browser that does with its connection what `greet` says. */
async function connected(greet: (socket: WebSocket) => void) {
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  await once(server, 'listening')
  server.on('connection', greet)
  const address = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`
  const messages: string[] = []
  const closed = new Promise<string>((resolve) => {
    const message = (bytes: Buffer): void => void messages.push(bytes.toString())
    const events = { message, tooLarge: () => undefined, closed: resolve }
    void connectEndpoint(address, events, BROWSER_LIMITS)
  })
  return { messages, closed }
}

it('answers the pings of a browser, and gives up one that floods it with them', async () => {
  const told: string[] = []
  const { closed } = await connected((socket) => {
    socket.on('pong', (data) => told.push(`pong ${data.toString()}`))
    socket.on('close', (code) => told.push(`close ${code}`))
    socket.once('pong', () => {
      for (let n = 0; n < 1_000; n += 1) socket.ping('flood')
    })
    socket.ping('hello')
  })
  expect(await closed).toBe('the browser sent too many control frames')
  await expect.poll(() => told.at(-1)).toBe('close 1008')
  expect(told[0]).toBe('pong hello')
  expect(told.length).toBeLessThan(300)
})
