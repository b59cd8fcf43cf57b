import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { WebSocketServer, type WebSocket } from 'ws'
import { REPLAY_VERSION } from '../wire/replay.ts'
import { HeldConnection } from './connection.ts'

const HOUR_MS = 3_600_000
const GRACE_MS = 60_000
const LOST_AND_BACK = ['connecting', 'live', 'lost', 'connecting', 'live']

let server: WebSocketServer
let sockets: WebSocket[]
let states: string[]
let connection: HeldConnection
let whenLost: () => void
/** How many of the next ones to come are cut before they are welcome. */
let refusals: number

/** Connected to a server that welcomes its clients and then says nothing by itself. */
beforeEach(async () => {
  sockets = []
  states = []
  refusals = 0
  whenLost = () => undefined
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  await once(server, 'listening')
  server.on('connection', (socket) => {
    sockets.push(socket)
    socket.once('message', () => (refusals-- > 0 ? socket.terminate() : welcome(socket)))
  })
})
afterEach(() => {
  vi.useRealTimers()
  connection.close()
  for (const socket of sockets) socket.terminate()
  server.close()
})

function welcome(socket: WebSocket): void {
  const session = { id: 's', reconnect: 'resume', graceMs: GRACE_MS }
  const place = { session, attachment: 'a', resume: 't', epoch: 1, role: 'driver' }
  const beat = { pingMs: 10_000, deadMs: 25_000 }
  const welcome = { type: 'welcome', v: REPLAY_VERSION, ...place, ...beat, received: 0 }
  socket.send(`#${JSON.stringify(welcome)}`)
}

async function connect(): Promise<void> {
  const { port } = server.address() as AddressInfo
  const onState = (state: string): void => {
    states.push(state)
    if (state === 'lost') whenLost()
  }
  connection = await HeldConnection.open(`http://127.0.0.1:${port}/cdp/a`, { onState })
}

describe('the wall clock', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['Date'] })
  })

  it('may jump while the connection is live: it was not silent for that', async () => {
    await connect()
    connection.onMessage = () => void states.push('message')
    vi.setSystemTime(Date.now() + HOUR_MS)
    sockets[0]?.send('{}')
    await expect.poll(() => states).toHaveLength(3)
    expect(states).toEqual(['connecting', 'live', 'message'])
  })

  it('may jump while the connection is lost: the grace time is not over for that', async () => {
    await connect()
    refusals = 2
    whenLost = () => vi.setSystemTime(Date.now() + HOUR_MS)
    sockets[0]?.terminate()
    await expect.poll(() => states.slice(0, 5)).toEqual(LOST_AND_BACK)
    expect(sockets).toHaveLength(4)
  })
})

describe('time that has passed', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true })
  })

  it('makes a silent connection a lost one, though the wall clock stands still', async () => {
    await connect()
    vi.advanceTimersByTime(GRACE_MS / 2)
    await expect.poll(() => states.slice(0, 5)).toEqual(LOST_AND_BACK)
  })

  it('ends the grace time, though the wall clock stands still', async () => {
    await connect()
    refusals = Infinity
    sockets[0]?.terminate()
    await expect.poll(() => sockets.length).toBeGreaterThan(1)
    vi.advanceTimersByTime(2 * GRACE_MS)
    await expect.poll(() => states.at(-1)).toBe('over')
  })
})
