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
const carrier = new RequestForwarder(new Seal('a secret of this test', Date.now))

afterEach(() => {
  carrier.close()
  owner.closeAllConnections()
  owner.close()
})

/** What the system says of a connection whose other end has not been heard of for a while. */
function fellSilent(code: string): Error {
  return Object.assign(new Error(`read ${code}`), { code, syscall: 'read' })
}

function turn(headers: Record<string, string> = {}, url = '/v1/keys/a/turns'): Exchange {
  const request = { method: 'POST', url, headers, rawHeaders: ['Host', 'a'] }
  const body = async (): Promise<Buffer> => Buffer.from('{"input":"once"}')
  return { request, response: new PassThrough(), body } as unknown as Exchange
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
  const carry = async (code: string, exchange: Exchange): Promise<boolean> => {
    const to = `http://127.0.0.1:${port}`
    const carried = carrier.carry({ exchange, to, from: '', isAlive: async () => true })
    const [request] = (await once(owner, 'request')) as [IncomingMessage]
    await once(request.resume(), 'end')
    outgoing.at(-1)?.destroy(fellSilent(code))
    return carried
  }
  try {
    for (const code of ['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNRESET']) {
      await expect(carry(code, turn())).rejects.toMatchObject({ code: 'owner_unreachable' })
      const keyed = { 'idempotency-key': 'a' }
      await expect(carry(code, turn(keyed))).resolves.toBe(false)
      await expect(carry(code, turn(keyed, '/v1/responses'))).resolves.toBe(false)
      const elsewhere = turn(keyed, '/v1/sessions')
      await expect(carry(code, elsewhere)).rejects.toMatchObject({ code: 'owner_unreachable' })
    }
  } finally {
    unsubscribe('net.client.socket', note)
  }
  owner.closeAllConnections()
  owner.close()
  await once(owner, 'close')
  const refused = carrier.carry({
    exchange: turn(),
    to: `http://localhost:${port}`,
    from: '',
    isAlive: async () => true,
  })
  await expect(refused).resolves.toBe(false)
})
