/** Many sessions that stream at once, each to a watcher of its own, over SSE and over WebSockets. */
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { Child } from './child.ts'
import { count, type Usage } from './measure.ts'
import type { Results } from './results.ts'
import type { Lag } from './streaming-clients.ts'

export type StreamingBench = {
  readonly folder: string
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
  readonly streams: number
}

const PER_SECOND = 50
const TRANSPORTS = ['sse', 'ws'] as const
type Transport = (typeof TRANSPORTS)[number]
/** Of the shown rate: a server that is late sends less. */
const RATE_MIN = 0.98

type Figure = Lag & { readonly perSecond: number; readonly cpu: number }

export async function benchStreaming(bench: StreamingBench): Promise<void> {
  const { streams, rounds, results } = bench
  console.log(
    `\n${count(streams)} sessions with ${PER_SECOND} deltas/s and a watcher each, and bare sockets:`,
  )
  for (const transport of TRANSPORTS) {
    const name = transport === 'sse' ? 'SSE' : 'WebSocket'
    const ours: Figure[] = []
    const bare: Figure[] = []
    for (let round = 0; round < rounds; round += 1) {
      ours.push(await measure(bench, 'holdfast', transport, round))
      bare.push(await measure(bench, 'bare', transport, round))
    }
    const due = streams * PER_SECOND
    const rates = ours.map(({ perSecond }) => perSecond / due)
    results.judge(`deltas over ${name}, of those due`, rates, { least: RATE_MIN })
    results.judge(
      `p99 of a delta over ${name}, ms`,
      ours.map(({ p99 }) => p99),
      { most: 50 },
    )
    results.judge(
      `growth of the lag over ${name}`,
      ours.map(({ growth }) => growth),
      { most: 2 },
    )
    const cpu = ours.map((one, round) => one.cpu / (bare[round]?.cpu ?? one.cpu))
    results.judge(`CPU of a delta over ${name}, of bare sockets`, cpu, null)
  }
}

async function measure(
  { folder, seconds, streams }: StreamingBench,
  mode: 'holdfast' | 'bare',
  transport: Transport,
  round: number,
): Promise<Figure> {
  const file = join(folder, `streaming-${mode}-${transport}-${round}.db`)
  const server = new Child('streaming-server', [mode, file, String(streams), String(PER_SECOND)])
  const clients = new Child('streaming-clients', [])
  try {
    const place = await server.next<{ port: number; ids: readonly string[] }>()
    await clients.next()
    await clients.ask({ transport, ...place })
    // Its code is compiled, and its backlog is sent.
    await setTimeout(2_000)
    await server.ask<Usage>('usage')
    await clients.ask('reset')
    await setTimeout(seconds * 1_000)
    const lag = await clients.ask<Lag>('report')
    const { cpuMicros } = await server.ask<Usage>('usage')
    const figure = { ...lag, perSecond: lag.deltas / seconds, cpu: cpuMicros / lag.deltas }
    console.log(`  ${mode.padEnd(8)} ${transport.padEnd(3)} ${described(figure)}`)
    return figure
  } finally {
    await clients.stop()
    await server.stop()
  }
}

function described({ perSecond, p50, p99, growth, cpu }: Figure): string {
  const late = `p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms late (second half ${growth.toFixed(2)})`
  return `${count(perSecond)} deltas/s, ${late}, CPU ${cpu.toFixed(1)} µs a delta`
}
