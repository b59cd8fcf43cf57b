import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { type AddressInfo, type Socket } from 'node:net'
import { PassThrough } from 'node:stream'
import { afterEach, expect, test } from 'vitest'
import type { Exchange } from '../../doors/exchange.ts'
import { RequestForwarder } from './request-forwarder.ts'
import { Seal } from './seal.ts'

const owner = createServer()
const forwarder = new RequestForwarder(new Seal('a secret of this test', Date.now))

afterEach(() => {
  forwarder.close()
  owner.closeAllConnections()
  owner.close()
})

/** What the system says of a connection whose other end has not been heard of for a while. */
function fellSilent(code: string): Error {
  return Object.assign(new Error(`read ${code}`), { code, syscall: 'read' })
}

function post(headers: Record<string, string> = {}, operation = 'turn.run'): Exchange {
  const request = { method: 'POST', url: '/v1/keys/a/turns', headers, rawHeaders: ['Host', 'a'] }
  const body = async (): Promise<Buffer> => Buffer.from('{"input":"once"}')
  return { request, operation, response: new PassThrough(), body } as unknown as Exchange
}

test('I11: what reached an owner that then fell silent is not sent again', async () => {
  owner.listen(0, '127.0.0.1')
  await once(owner, 'listening')
  const port = (owner.address() as AddressInfo).port
  const outgoing: Socket[] = []
  const note = (message: unknown): void => {
    outgoing.push((message as { socket: Socket }).socket)
  }
  subscribe('net.client.socket', note)
  const send = async (code: string, exchange: Exchange): Promise<boolean> => {
    const to = `http://127.0.0.1:${port}`
    const sent = forwarder.send(exchange, { to, from: '', isAlive: async () => true })
    const [request] = (await once(owner, 'request')) as [IncomingMessage]
    await once(request.resume(), 'end')
    outgoing.at(-1)?.destroy(fellSilent(code))
    return sent
  }
  try {
    for (const code of ['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNRESET']) {
      await expect(send(code, post())).rejects.toMatchObject({ code: 'owner_unreachable' })
      const keyed = { 'idempotency-key': 'a' }
      await expect(send(code, post(keyed))).resolves.toBe(false)
      const elsewhere = post(keyed, 'session.create')
      await expect(send(code, elsewhere)).rejects.toMatchObject({ code: 'owner_unreachable' })
    }
  } finally {
    unsubscribe('net.client.socket', note)
  }
  owner.closeAllConnections()
  owner.close()
  await once(owner, 'close')
  const refused = forwarder.send(post(), {
    to: `http://localhost:${port}`,
    from: '',
    isAlive: async () => true,
  })
  await expect(refused).resolves.toBe(false)
})
