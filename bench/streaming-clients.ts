/** A watcher for each of many sessions: `sse` or `ws`. Measures how late every delta comes. */
import { get } from 'node:http'
import { WebSocket } from 'ws'
import { percentile } from './measure.ts'
import { nowMs } from './socket-protocol.ts'

export type Lag = {
  readonly deltas: number
  readonly p50: number
  readonly p99: number
  /** The median of the second half of the time, by that of the first: a queue that grows shows. */
  readonly growth: number
}

type Order = {
  readonly transport: 'sse' | 'ws'
  readonly port: number
  readonly ids: readonly string[]
}

const TEXT = /"text":"(\d+\.?\d*) /g

let lags: number[] = []

function hear(text: string): void {
  const now = nowMs()
  for (const [, at] of text.matchAll(TEXT)) lags.push(now - Number(at))
}

function openStream({ port }: Order, id: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const path = `/v1/sessions/${id}/events`
    const headers = { accept: 'text/event-stream' }
    get({ host: '127.0.0.1', port, path, headers, agent: false }, (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`status ${answer.statusCode}`))
      answer.setEncoding('utf8').on('data', hear)
      resolve()
    }).on('error', reject)
  })
}

function openSocket({ port }: Order, session: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`, { perMessageDeflate: false })
    socket.on('error', reject)
    socket.on('open', () => {
      socket.send(JSON.stringify({ type: 'hello', v: 1, session, role: 'watcher' }))
      resolve()
    })
    socket.on('message', (data: Buffer) => {
      const text = data.toString('latin1')
      if (text.startsWith('{"type":"ping"')) socket.send('{"type":"pong"}')
      hear(text)
    })
  })
}

async function open(order: Order): Promise<void> {
  const one = order.transport === 'sse' ? openStream : openSocket
  for (let from = 0; from < order.ids.length; from += 50) {
    await Promise.all(order.ids.slice(from, from + 50).map((id) => one(order, id)))
  }
}

function lag(): Lag {
  const half = Math.floor(lags.length / 2)
  const sorted = (some: readonly number[]): number[] => some.toSorted((a, b) => a - b)
  const [all, first, second] = [lags, lags.slice(0, half), lags.slice(half)].map(sorted)
  const p50 = (some: readonly number[] = []): number => percentile(some, 0.5)
  return {
    deltas: lags.length,
    p50: p50(all),
    p99: percentile(all ?? [], 0.99),
    growth: p50(second) / p50(first),
  }
}

process.on('message', (order: Order | 'reset' | 'report') => {
  if (order === 'reset') {
    lags = []
    process.send?.('reset')
  } else if (order === 'report') process.send?.(lag())
  else void open(order).then(() => process.send?.('open'))
})
process.once('disconnect', () => process.exit())
process.send?.('ready')
