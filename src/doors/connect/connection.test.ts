import { afterEach, expect, it } from 'vitest'
import type { Holdfast } from '../../core/index.ts'
import { openHoldfast } from '../../open.ts'
import { Connection } from './connection.ts'
import { Hub } from './hub.ts'
import type { Socket } from './socket.ts'

let holdfast: Holdfast
let hub: Hub

afterEach(async () => {
  hub.close()
  await holdfast.close()
})

/** A socket that keeps what it is told. */
class Told implements Socket {
  readonly address = '127.0.0.1'
  readonly bufferedBytes = 0
  readonly frames: string[] = []

  send(data: string | Uint8Array): void {
    this.frames.push(String(data))
  }
  close(): void {}
  cut(): void {}
}

/** The process has something else to do, and reads nothing meanwhile. */
function stall(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}

it('leaves nothing behind, ten thousand times, whatever ends first', async () => {
  holdfast = await openHoldfast({ store: 'memory:' })
  hub = new Hub({ holdfast })
  const visit = async (_: unknown, n: number): Promise<void> => {
    const socket = new Told()
    const connection = new Connection(hub, socket)
    connection.receive(`{"type":"hello","v":1,"options":{"reconnect":"resume"},"key":"k${n}"}`)
    await expect.poll(() => socket.frames[0]).toContain('welcome')
    connection.receive('{"type":"turn","id":"1","input":"x"}')
    if (n % 2 === 0) connection.closed()
    await holdfast.session(connection.session?.id ?? '').close()
    connection.closed()
  }
  for (let n = 0; n < 100; n += 1) {
    await Promise.all(Array.from({ length: 100 }, visit))
  }
  await expect
    .poll(() => [hub.count, hub.presences, holdfast.authority.heldCount])
    .toEqual([0, 0, 0])
})

it('is alive if its sign of life waits to be read when the time for it is over', async () => {
  holdfast = await openHoldfast({ store: 'memory:' })
  hub = new Hub({ holdfast, limits: { probeMs: 50 } })
  const socket = new Told()
  const connection = new Connection(hub, socket)
  connection.receive('{"type":"hello","v":1,"key":"a"}')
  await expect.poll(() => socket.frames.join()).toContain('welcome')
  const isAlive = connection.isAlive()
  setImmediate(() => {
    // As data that has arrived: read after the timers that are due by then.
    setImmediate(() => connection.receive('{"type":"pong"}'))
    stall(100)
  })
  expect(await isAlive).toBe(true)
  expect(await connection.isAlive()).toBe(false)
})
