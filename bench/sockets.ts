/**
 * Sockets: one session to a thousand of them, a thousand that are dropped at once and come back, and what
 * an idle one costs; against bare `ws` and Socket.IO in the same run. Server and clients are processes of
 * their own. Ten thousand idle sockets need as many open files in each: `ulimit -n 12000` or more.
 */
import { join } from 'node:path'
import { Child } from './child.ts'
import { median } from './measure.ts'
import { installPeers } from './peers.ts'
import {
  KINDS,
  type ClientOrder,
  type Judgement,
  type Kind,
  type ServerOrder,
  type ServerUsage,
} from './socket-protocol.ts'
import type { Results } from './results.ts'

const NAMES: Readonly<Record<Kind, string>> = {
  each: 'ws, a send per message  ',
  together: 'ws, once and together   ',
  socketio: 'Socket.IO with recovery ',
  holdfast: 'Holdfast                ',
}

/** How much each produces in the fan-out: about as long, whatever it is. */
const MESSAGES: Readonly<Record<Kind, number>> = {
  each: 300,
  together: 6_000,
  socketio: 200,
  holdfast: 6_000,
}
const BURST = 10
/** How often all are dropped, besides the first time; the median counts. */
const DROPS = 3

export type SocketBench = {
  readonly folder: string
  readonly rounds: number
  /** Of the fan-out and the recovery, and idle ones. */
  readonly sockets: number
  readonly idleSockets: number
  readonly results: Results
}

type Pair = {
  readonly server: { ask<Answer>(order: ServerOrder): Promise<Answer> }
  readonly clients: { ask<Answer>(order: ClientOrder): Promise<Answer> }
}

let runs = 0

async function withPair<Result>(
  { folder }: SocketBench,
  kind: Kind,
  measure: (pair: Pair) => Promise<Result>,
): Promise<Result> {
  runs += 1
  const server = new Child('socket-server', [kind, join(folder, `sockets-${runs}.db`)])
  const port = await server.next<number>()
  const clients = new Child('socket-clients', [kind, String(port)])
  await clients.next()
  try {
    return await measure({ server, clients })
  } finally {
    await clients.stop()
    await server.stop()
  }
}

async function fanOut(bench: SocketBench, kind: Kind) {
  const messages = MESSAGES[kind]
  return withPair(bench, kind, async ({ server, clients }) => {
    await clients.ask({ type: 'open', count: bench.sockets })
    const warm = clients.ask({ type: 'await', n: BURST, counts: true })
    await server.ask({ type: 'produce', messages: BURST, burst: BURST })
    await warm
    await server.ask({ type: 'usage' })
    const done = clients.ask<number>({ type: 'await', n: BURST + messages, counts: true })
    const begin = await server.ask<number>({ type: 'produce', messages, burst: BURST })
    const seconds = ((await done) - begin) / 1_000
    const { cpuMicros } = await server.ask<ServerUsage>({ type: 'usage' })
    const { lost, doubled } = await clients.ask<Judgement>({ type: 'judge' })
    const deliveries = messages * bench.sockets
    return { perSecond: deliveries / seconds, micros: cpuMicros / deliveries, lost, doubled }
  })
}

async function recovery(bench: SocketBench, kind: Kind) {
  return withPair(bench, kind, async ({ server, clients }) => {
    await clients.ask({ type: 'open', count: bench.sockets })
    await server.ask({ type: 'flow', perSecond: 100 })
    await clients.ask({ type: 'await', n: 100, counts: false })
    // A server that has run for a while has its code compiled: the first time does not count.
    const coldMs = await clients.ask<number>({ type: 'drop' })
    const times: number[] = []
    while (times.length < DROPS) times.push(await clients.ask<number>({ type: 'drop' }))
    const produced = await server.ask<number>({ type: 'stop' })
    await clients.ask({ type: 'await', n: produced, counts: false })
    const { lost, doubled } = await clients.ask<Judgement>({ type: 'judge' })
    return { coldMs, ms: median(times), lost, doubled }
  })
}

async function idle(bench: SocketBench, kind: Kind): Promise<number> {
  return withPair(bench, kind, async ({ server, clients }) => {
    await clients.ask({ type: 'open', count: 100 })
    const before = await server.ask<ServerUsage>({ type: 'usage' })
    await clients.ask({ type: 'open', count: bench.idleSockets - 100 })
    await server.ask<ServerUsage>({ type: 'usage' })
    const after = await server.ask<ServerUsage>({ type: 'usage' })
    return (after.rss - before.rss) / (bench.idleSockets - 100)
  })
}

async function benchFanOut(bench: SocketBench): Promise<void> {
  console.log(`\nOne session to ${bench.sockets} sockets, ${BURST} messages of 100 bytes a tick:`)
  const rates: Record<Kind, number[]> = { each: [], together: [], socketio: [], holdfast: [] }
  for (let round = 0; round < bench.rounds; round += 1) {
    for (const kind of KINDS) {
      const { perSecond, micros, lost, doubled } = await fanOut(bench, kind)
      rates[kind].push(perSecond)
      const rate = Math.round(perSecond).toLocaleString('en')
      const wrong = lost + doubled === 0 ? '' : `; LOST ${lost}, DOUBLED ${doubled}`
      console.log(
        `  ${NAMES[kind]} ${rate} deliveries/s, server CPU ${micros.toFixed(2)} µs${wrong}`,
      )
    }
  }
  const ratio = (kind: Kind): number => median(rates.holdfast) / median(rates[kind])
  bench.results.judge('fan-out, of ws with a send per message', ratio('each'), { least: 3 })
  bench.results.judge('fan-out, of Socket.IO', ratio('socketio'), { least: 4 })
}

async function benchRecovery(bench: SocketBench): Promise<void> {
  console.log(`\n${bench.sockets} sockets dropped at once while 100 messages/s flow:`)
  const times: Record<Kind, number[]> = { each: [], together: [], socketio: [], holdfast: [] }
  let wrong = 0
  for (let round = 0; round < bench.rounds; round += 1) {
    for (const kind of KINDS) {
      const { coldMs, ms, lost, doubled } = await recovery(bench, kind)
      times[kind].push(ms)
      if (kind === 'holdfast') wrong += lost + doubled
      const told = `lost ${lost}, doubled ${doubled}`
      const first = `the first time ${coldMs.toFixed(0)} ms`
      console.log(
        `  ${NAMES[kind]} back and caught up after ${ms.toFixed(0)} ms, ${first}; ${told}`,
      )
    }
  }
  const ratio = median(times.holdfast) / median(times.together)
  bench.results.judge('all back, of ws once and together', ratio, { most: 1.5 })
  bench.results.judge('messages lost or doubled', wrong, { most: 0 })
}

async function benchIdle(bench: SocketBench): Promise<void> {
  console.log(`\nMemory of ${bench.idleSockets.toLocaleString('en')} idle sockets:`)
  const bytes: Record<Kind, number> = { each: 0, together: 0, socketio: 0, holdfast: 0 }
  for (const kind of KINDS) {
    // The two bare ones are the same here.
    if (kind === 'together') continue
    bytes[kind] = await idle(bench, kind)
    console.log(`  ${NAMES[kind]} ${(bytes[kind] / 1_000).toFixed(1)} kB each`)
  }
  const [own, bare] = [bytes.holdfast / 1_000, bytes.each / 1_000]
  bench.results.judge('memory of an idle attachment, kB more than bare ws', own - bare, { most: 4 })
}

export async function benchSockets(bench: SocketBench, part: string | undefined): Promise<void> {
  if (!installPeers()) throw new Error('the peers could not be installed')
  if (part === undefined || part === 'fanout') await benchFanOut(bench)
  if (part === undefined || part === 'recovery') await benchRecovery(bench)
  if (part === undefined || part === 'idle') await benchIdle(bench)
}
