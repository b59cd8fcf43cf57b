import { afterEach, expect, it } from 'vitest'
import type { Holdfast } from '../../core/index.ts'
import { openHoldfast } from '../../open.ts'
import { Connection } from './connection.ts'
import { connectService } from './entry.ts'
import { Hub } from './hub.ts'
import { openGate, type Socket } from './socket.ts'

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
  bytesRead = 0
  isCut = false

  send(data: string | Uint8Array): void {
    this.frames.push(String(data))
  }
  close(): void {}
  cut(): void {
    this.isCut = true
  }
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
    const connection = new Connection(hub, socket, connectService)
    connection.receive(`{"type":"hello","v":1,"options":{"reconnect":"resume"},"key":"k${n}"}`)
    await expect.poll(() => socket.frames[0]).toContain('welcome')
    connection.receive('{"type":"turn","id":"1","input":"x"}')
    if (n % 2 === 0) connection.closed()
    await holdfast.session(connection.attachment?.session ?? '').close()
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
  const connection = new Connection(hub, socket, connectService)
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

it('is alive while a large message comes in, and not after that', async () => {
  holdfast = await openHoldfast({ store: 'memory:' })
  hub = new Hub({ holdfast })
  const socket = new Told()
  const connection = new Connection(hub, socket, connectService)
  connection.receive('{"type":"hello","v":1,"key":"a"}')
  await expect.poll(() => socket.frames.join()).toContain('welcome')
  const { deadMs } = hub.limits
  const later = (times: number): number => hub.clock.monotonic() + times * (deadMs + 1)
  socket.bytesRead = 1_000
  connection.watch(later(1))
  expect(socket.isCut).toBe(false)
  connection.watch(later(2))
  expect(socket.isCut).toBe(true)
})

it('turns out the connection that was first of those that do not say hello', async () => {
  const told: (readonly unknown[])[] = []
  holdfast = await openHoldfast({
    store: 'memory:',
    onDiagnostic: ({ code, facts }) => told.push([code, facts['reason'], facts['door']]),
  })
  hub = new Hub({ holdfast, limits: { newcomersMax: 2 } })
  const sockets = Array.from({ length: 5 }, () => new Told())
  for (const [index, socket] of sockets.entries()) {
    const connection = new Connection(hub, socket, connectService)
    if (index === 0) connection.receive('{"type":"hello","v":1,"key":"a"}')
  }
  expect(sockets.map(({ frames }) => frames.join().includes('too_many'))).toEqual([
    ...[false, true, true, false, false],
  ])
  await expect.poll(() => sockets[0]?.frames.join()).toContain('welcome')
  await expect.poll(() => sockets.map(({ isCut }) => isCut).indexOf(true)).toBe(1)
  expect([hub.count, told.filter(([code]) => code === 'client_refused')]).toEqual([
    3,
    [
      ['client_refused', 'too_many', 'connect'],
      ['client_refused', 'too_many', 'connect'],
    ],
  ])
})

/** Comes in with these, to a session of a server that knows only the token `good`. */
async function arrive(session: string, auth: object): Promise<{ leave: () => void; said: any }> {
  const socket = new Told()
  const connection = new Connection(hub, socket, connectService)
  connection.receive(JSON.stringify({ type: 'hello', v: 1, session, auth }))
  await expect.poll(() => socket.frames[0]).toBeDefined()
  return { leave: () => connection.closed(), said: JSON.parse(socket.frames[0] ?? '') }
}

it.each([
  ['lets a guest come back that shows its link again', true],
  ['does not let a client come back by a link that came in by a token', false],
])('%s', async (_, isGuest) => {
  holdfast = await openHoldfast({ store: 'memory:' })
  const grant = (token?: string) => (token === 'good' ? (['watch', 'talk'] as const) : null)
  hub = new Hub({ holdfast, gate: { ...openGate, grant } })
  const session = await holdfast.resolve({ reconnect: 'resume' })
  const { token: link } = await session.createLink({ scopes: ['watch', 'talk'] })
  const first = await arrive(session.id, isGuest ? { link } : { token: 'good' })
  first.leave()
  const { attachment, resume: token } = first.said
  const { said } = await arrive(session.id, { link, resume: { attachment, token } })
  expect(said).toMatchObject(
    isGuest ? { type: 'welcome', attachment } : { type: 'refuse', code: 'unauthorized' },
  )
  const state = isGuest ? 'live' : 'detached'
  expect((await session.state()).attachments).toMatchObject([{ id: attachment, state }])
})
