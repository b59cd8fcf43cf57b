/**
 * `npm run bench`: what Holdfast costs, against the physical limit measured in the same run.
 * Figures of different machines do not compare; the ratios do.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { bareSqlite } from './bare-sqlite.ts'
import { benchCdp } from './cdp.ts'
import { Child } from './child.ts'
import { benchClaude } from './claude.ts'
import { embedded } from './embedded.ts'
import { describeLoad, median, perSecond, type Load, type Usage } from './measure.ts'
import { benchOwners } from './owners.ts'
import { benchPostgres } from './postgres.ts'
import { idleSessions, openLong } from './size.ts'
import { benchSockets } from './sockets.ts'

const HELP = `npm run bench -- [--seconds N] [--rounds N] [--only PART] [--part PART]
    [--sessions N] [--events N] [--sockets N] [--idle N] [--lease MS]
Parts for --only: http, embedded, owners, size, sockets, cdp, postgres, claude.
Measures durable turns over HTTP and in process, what owners cost them, memory of idle sessions, opening a long one, and
sockets (parts: fanout, recovery, idle) against bare ws and Socket.IO, which are installed into
bench/peers for it; and the CDP door against Chromium and a raw proxy, with
/usr/bin/chromium; and 1, 2 and 4 nodes on PostgreSQL (parts: turns, nodes-http, forwarding,
failover, size); and a warm turn of Claude Code, which npm test installs. Idle sockets need as many open files per process: ulimit -n 12000 or more.`

const CALLERS = 64
const verdicts: string[] = []

function verdict(what: string, value: number, target: string, reached: boolean): void {
  verdicts.push(
    `${reached ? 'reached' : 'MISSED '}  ${what}: ${value.toFixed(2)} (to reach: ${target})`,
  )
}

async function loadOn(port: number, keys: number, seconds: number, server: Child) {
  const client = new Child('load', [port, CALLERS, keys, seconds].map(String))
  await client.next()
  await server.ask<Usage>('reset')
  const load = await client.ask<Load>('go')
  const usage = await server.ask<Usage>('usage')
  await client.stop()
  return { load, usage }
}

async function overHttp(folder: string, keys: number, seconds: number, round: number) {
  const server = new Child('holdfast-http', [join(folder, `http-${keys}-${round}.db`)])
  const port = await server.next<number>()
  const answer = await fetch(`http://127.0.0.1:${port}/v1/keys/sample/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: 'hello, is anybody there?' }),
  })
  const headers = Object.fromEntries(answer.headers)
  delete headers['connection']
  delete headers['keep-alive']
  delete headers['date']
  const body = await answer.text()
  const ours = await loadOn(port, keys, seconds, server)
  await server.stop()
  const bare = new Child('bare-http', [JSON.stringify(headers), body])
  const limit = await loadOn(await bare.next<number>(), keys, seconds, bare)
  await bare.stop()
  return { ours, limit }
}

async function httpTurns(folder: string, keys: number, seconds: number, rounds: number) {
  const ratios: number[] = []
  let lag = 0
  for (let round = 0; round < rounds; round += 1) {
    const { ours, limit } = await overHttp(folder, keys, seconds, round)
    const ratio = perSecond(ours.load) / perSecond(limit.load)
    const cpu = (ours.usage.cpuMicros / ours.load.turns).toFixed(0)
    ratios.push(ratio)
    lag = Math.max(lag, ours.usage.lagP99)
    console.log(`  holdfast   ${describeLoad(ours.load)}; server CPU ${cpu} µs a turn,`)
    console.log(`             event loop lag p99 ${ours.usage.lagP99.toFixed(1)} ms`)
    console.log(`  bare http  ${describeLoad(limit.load)}      ratio ${ratio.toFixed(2)}`)
  }
  return { ratio: median(ratios), lag }
}

async function inProcess(folder: string, keys: number, seconds: number, rounds: number) {
  const ratios: number[] = []
  let lag = 0
  const callers = keys === 1 ? CALLERS : keys
  for (let round = 0; round < rounds; round += 1) {
    const ours = await embedded(join(folder, `in-${keys}-${round}.db`), keys, callers, seconds)
    const limit = bareSqlite(join(folder, `bare-${keys}-${round}.db`), keys, seconds)
    const ratio = perSecond(ours) / perSecond(limit)
    ratios.push(ratio)
    lag = Math.max(lag, ours.lagP99)
    console.log(`  holdfast     ${describeLoad(ours)}; loop lag p99 ${ours.lagP99.toFixed(1)} ms`)
    console.log(`  bare sqlite  ${describeLoad(limit)}      ratio ${ratio.toFixed(2)}`)
  }
  return { ratio: median(ratios), lag }
}

async function benchHttp(folder: string, seconds: number, rounds: number): Promise<void> {
  for (const keys of [200, 1]) {
    console.log(
      `\nDurable turns over HTTP, ${CALLERS} callers, ${keys} key(s), against a bare Node server:`,
    )
    const { ratio, lag } = await httpTurns(folder, keys, seconds, rounds)
    if (keys === 1) continue
    verdict('HTTP turns, 200 keys, of bare Node HTTP', ratio, '>= 0.5', ratio >= 0.5)
    verdict('event loop lag p99 over HTTP, ms', lag, '< 10', lag < 10)
  }
}

async function benchEmbedded(folder: string, seconds: number, rounds: number): Promise<void> {
  for (const keys of [200, 1]) {
    const callers = keys === 1 ? CALLERS : keys
    console.log(
      `\nDurable turns in process, ${callers} callers, ${keys} key(s), against bare SQLite:`,
    )
    const { ratio, lag } = await inProcess(folder, keys, seconds, rounds)
    verdict(`in-process turns, ${keys} key(s), of bare SQLite`, ratio, '>= 0.4', ratio >= 0.4)
    verdict(`event loop lag p99 in process, ${keys} key(s), ms`, lag, '< 10', lag < 10)
  }
}

async function benchSize(folder: string, sessions: number, events: number): Promise<void> {
  console.log(`\nMemory of ${sessions.toLocaleString('en')} idle sessions:`)
  const megabytes = (await idleSessions(join(folder, 'idle.db'), sessions)) / 1e6
  console.log(`  ${megabytes.toFixed(1)} MB`)
  verdict(`memory of ${sessions} idle sessions, MB`, megabytes, '<= 50', megabytes <= 50)
  console.log('\nOpening a session in a process that has not seen it:')
  for (const count of [100, events]) {
    const ms = await openLong(join(folder, `long-${count}.db`), count)
    console.log(`  ${count.toLocaleString('en')} events: ${ms.toFixed(2)} ms`)
    verdict(`opening ${count} events, ms`, ms, '< 50', ms < 50)
  }
}

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '5' },
    rounds: { type: 'string', default: '3' },
    sessions: { type: 'string', default: '100000' },
    events: { type: 'string', default: '1000000' },
    sockets: { type: 'string', default: '1000' },
    idle: { type: 'string', default: '10000' },
    lease: { type: 'string', default: '10000' },
    only: { type: 'string' },
    part: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) {
  console.log(HELP)
} else {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-'))
  const [seconds, rounds] = [Number(values.seconds), Number(values.rounds)]
  const wanted = (part: string): boolean => values.only === undefined || values.only === part
  try {
    if (wanted('http')) await benchHttp(folder, seconds, rounds)
    if (wanted('embedded')) await benchEmbedded(folder, seconds, rounds)
    if (wanted('owners')) await benchOwners({ folder, seconds, rounds, verdict })
    if (wanted('size')) await benchSize(folder, Number(values.sessions), Number(values.events))
    if (wanted('sockets')) {
      const counts = { sockets: Number(values.sockets), idleSockets: Number(values.idle) }
      await benchSockets({ folder, rounds, verdict, ...counts }, values.part)
    }
    if (wanted('cdp')) await benchCdp({ seconds, rounds, verdict })
    if (wanted('postgres')) {
      const leaseMs = Number(values.lease)
      await benchPostgres({ seconds, rounds, verdict, leaseMs }, values.part)
    }
    if (wanted('claude')) await benchClaude({ folder, rounds, verdict })
    console.log(`\n${verdicts.join('\n')}`)
  } finally {
    await rm(folder, { recursive: true })
  }
}
