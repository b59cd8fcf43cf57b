/** The server of the socket measurements, in one of four kinds; told what to do by its parent. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { openHoldfast, type Agent } from 'holdfast'
import { startServer } from 'holdfast/server'
import { WebSocketServer, type WebSocket } from 'ws'
import { loadPeer } from './peers.ts'
import { nowMs, textOf, type Kind, type Message, type ServerOrder } from './socket-protocol.ts'

setFlagsFromString('--expose_gc')
const collectGarbage = runInNewContext('gc') as () => void

/** What sends messages to everybody who is connected. */
type Broadcaster = {
  readonly port: number
  /** Messages of one tick. `kept`: they must be there for those who come back later. */
  send(messages: readonly Message[], kept: boolean): void
}

const kind = process.argv[2] as Kind
const broadcaster = await start()
let produced = 0
let flowing: NodeJS.Timeout | undefined
let cpu = process.cpuUsage()

process.on('message', (order: ServerOrder) => void obey(order))
process.send?.(broadcaster.port)

async function start(): Promise<Broadcaster> {
  switch (kind) {
    case 'each':
    case 'together':
      return bareServer(kind === 'together')
    case 'socketio':
      return socketIo()
    case 'holdfast':
      return holdfastServer(process.argv[3] ?? '')
  }
}

async function obey(order: ServerOrder): Promise<void> {
  switch (order.type) {
    case 'produce':
      process.send?.(nowMs())
      for (let left = order.messages; left > 0; left -= order.burst) {
        broadcaster.send(batch(Math.min(left, order.burst)), false)
        await new Promise((resolve) => setImmediate(resolve))
      }
      return
    case 'flow':
      flowing = setInterval(() => broadcaster.send(batch(1), true), 1_000 / order.perSecond)
      process.send?.('flows')
      return
    case 'stop':
      clearInterval(flowing)
      process.send?.(produced)
      return
    case 'usage': {
      collectGarbage()
      const { user, system } = process.cpuUsage(cpu)
      cpu = process.cpuUsage()
      process.send?.({ cpuMicros: user + system, rss: process.memoryUsage().rss })
    }
  }
}

function batch(count: number): Message[] {
  return Array.from({ length: count }, () => {
    produced += 1
    return { type: 'delta', turn: 't1', n: produced, text: textOf(produced) }
  })
}

async function listening(server: Server): Promise<number> {
  const address = { port: 0, host: '127.0.0.1', backlog: 4_096 }
  await new Promise<void>((resolve) => server.listen(address, resolve))
  return (server.address() as AddressInfo).port
}

/** Remembers what is to be kept, and sends what a client missed when it says where it stands. */
async function bareServer(together: boolean): Promise<Broadcaster> {
  const server = createServer()
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false })
  /** Who has said where it stands: from then on nothing is missed and nothing comes twice. */
  const joined = new Set<WebSocket>()
  const past: { readonly n: number; readonly text: string }[] = []
  const tell = (socket: WebSocket, texts: readonly string[]): void => {
    if (!together) for (const text of texts) socket.send(text)
    else if (texts.length > 0) socket.send(`[${texts.join(',')}]`)
  }
  sockets.on('connection', (socket) => {
    socket.once('message', (hello: Buffer) => {
      const { after } = JSON.parse(String(hello)) as { after: number }
      tell(
        socket,
        past.filter(({ n }) => n > after).map(({ text }) => text),
      )
      joined.add(socket)
    })
    socket.on('close', () => joined.delete(socket))
  })
  return {
    port: await listening(server),
    send(messages, kept) {
      const texts = messages.map((message) => JSON.stringify(message))
      if (kept) messages.forEach(({ n }, index) => past.push({ n, text: texts[index] ?? '' }))
      if (!together) {
        for (const text of texts) for (const socket of joined) socket.send(text)
        return
      }
      const bytes = Buffer.from(`[${texts.join(',')}]`)
      for (const socket of joined) socket.send(bytes, { binary: false })
    },
  }
}

type Io = { emit(event: string, value: unknown): void; attach(server: Server): void }

async function socketIo(): Promise<Broadcaster> {
  const { Server } = loadPeer('socket.io') as { Server: new (options: object) => Io }
  const server = createServer()
  const connectionStateRecovery = { maxDisconnectionDuration: 120_000, skipMiddlewares: true }
  const io = new Server({
    connectionStateRecovery,
    transports: ['websocket'],
    perMessageDeflate: false,
  })
  io.attach(server)
  const port = await listening(server)
  // Its recovery needs something to have been sent before.
  io.emit('m', { n: 0, text: textOf(0) })
  return {
    port,
    send(messages) {
      for (const message of messages) io.emit('m', message)
    },
  }
}

/** One long turn says everything, in parts that are kept in memory, as all of the others do. */
async function holdfastServer(file: string): Promise<Broadcaster> {
  const waiting: string[] = []
  let wake: () => void = () => undefined
  const speak: Agent = async function* () {
    for (;;) {
      const next = waiting.shift()
      if (next !== undefined) yield next
      else
        await new Promise<void>((resolve) => {
          wake = resolve
        })
    }
  }
  const holdfast = await openHoldfast({ store: `sqlite:${file}`, agents: { speak } })
  const server = await startServer({ holdfast, port: 0 })
  const session = await holdfast.resolve({ key: 'bench-0' })
  session.turn('speak').then(undefined, () => undefined)
  return {
    port: server.port,
    send(messages) {
      for (const { text } of messages) waiting.push(text)
      wake()
    },
  }
}
