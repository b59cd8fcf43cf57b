/** The least that a proxy can do: every frame of one socket to another, unread. */
import type { AddressInfo } from 'node:net'
import { WebSocket, WebSocketServer } from 'ws'
import { reportUsage } from './child.ts'

const [upstream = ''] = process.argv.slice(2)
const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false })
server.on('connection', (client) => {
  const browser = new WebSocket(upstream, { perMessageDeflate: false, maxPayload: 0 })
  const early: Buffer[] = []
  browser.on('open', () => {
    for (const data of early.splice(0)) browser.send(data, { binary: false })
  })
  client.on('message', (data: Buffer) => {
    if (browser.readyState === WebSocket.OPEN) browser.send(data, { binary: false })
    else early.push(data)
  })
  browser.on('message', (data: Buffer) => client.send(data, { binary: false }))
  client.on('close', () => browser.close())
  browser.on('close', () => client.close())
})
server.on('listening', () => {
  reportUsage()
  process.send?.(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/`)
})
