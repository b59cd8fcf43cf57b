/**
 * Many sessions that each say something at a steady rate: `MODE FILE SESSIONS PER-SECOND`. Mode
 * `holdfast` is the server as users start it. Mode `bare` writes the same bytes to the same number of
 * readers and does nothing else: what the sockets cost by themselves. Every delta begins with its time.
 */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { openHoldfast, type Agent } from 'holdfast'
import { startServer } from 'holdfast/server'
import { WebSocketServer, type WebSocket } from 'ws'
import { reportUsage } from './child.ts'
import { nowMs } from './socket-protocol.ts'

const [mode = '', file = '', sessions = '', perSecond = ''] = process.argv.slice(2)
const count = Number(sessions)
const gapMs = 1_000 / Number(perSecond)

const delta = (): string => `${nowMs()} and some words `

/** Calls back at the rate, on average also when the process is late. */
async function steadily(say: () => void | Promise<void>): Promise<never> {
  const begin = nowMs() + Math.random() * gapMs
  for (let n = 1; ; n += 1) {
    const wait = begin + n * gapMs - nowMs()
    if (wait > 0) await setTimeout(wait)
    await say()
  }
}

async function holdfastServer(): Promise<{ port: number; ids: readonly string[] }> {
  const speak: Agent = async function* () {
    const begin = nowMs() + Math.random() * gapMs
    for (let n = 1; ; n += 1) {
      const wait = begin + n * gapMs - nowMs()
      if (wait > 0) await setTimeout(wait)
      yield delta()
    }
  }
  const holdfast = await openHoldfast({
    store: `sqlite:${file}`,
    agents: { speak },
  })
  const server = await startServer({ holdfast, port: 0 })
  const opened = await Promise.all(
    Array.from({ length: count }, (_, n) => holdfast.resolve({ key: `stream-${n}` })),
  )
  for (const session of opened) session.turn('speak').then(undefined, () => undefined)
  return { port: server.port, ids: opened.map(({ id }) => id) }
}

async function bareServer(): Promise<{ port: number; ids: readonly string[] }> {
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    void speakTo(response)
  })
  new WebSocketServer({ server, perMessageDeflate: false }).on('connection', speakOver)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    ids: Array.from({ length: count }, (_, n) => `stream-${n}`),
  }
}

async function speakTo(response: ServerResponse): Promise<void> {
  let n = 0
  await steadily(() => {
    n += 1
    response.write(`event: delta\nid: 2.${n}\ndata: ${frame(n)}\n\n`)
  })
}

function speakOver(socket: WebSocket): void {
  let n = 0
  void steadily(() => {
    n += 1
    socket.send(frame(n))
  })
}

const frame = (n: number): string => JSON.stringify({ type: 'delta', turn: 't2', n, text: delta() })

process.send?.(await (mode === 'bare' ? bareServer() : holdfastServer()))
reportUsage()
