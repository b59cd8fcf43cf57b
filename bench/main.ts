/**
 * `npm run bench`: what Holdfast costs, against the physical limit and what a user could pick instead,
 * measured in the same run. Figures of different machines do not compare; the ratios do.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { bareSqlite } from './bare-sqlite.ts'
import { benchCdp } from './cdp.ts'
import { benchClaude } from './claude.ts'
import { compare } from './compare.ts'
import { embedded } from './embedded.ts'
import { benchHttp, benchLayers, benchPeers } from './http.ts'
import { CALLERS } from './http-load.ts'
import { benchInspectorList } from './inspector-list.ts'
import { benchInspectorSession } from './inspector-session.ts'
import { benchLists } from './list.ts'
import { describeLoad, perSecond } from './measure.ts'
import { benchOwners } from './owners.ts'
import { benchPostgres } from './postgres.ts'
import { Results } from './results.ts'
import { idleSessions, openLong } from './size.ts'
import { benchSockets } from './sockets.ts'
import { benchStreaming } from './streaming.ts'

const PARTS = {
  http: 'durable turns over HTTP, of bare Node HTTP, and of it with a SQLite commit for each turn',
  layers: 'the same without sync and without a log on disk',
  peers: 'the same load on BullMQ, Restate and DBOS, which are installed into bench/peers',
  embedded: 'durable turns in process, of a bare loop on SQLite',
  owners: 'what tokens, principals and quotas cost a turn',
  size: 'memory of idle sessions, and opening a long one',
  list: 'pages of sessions and asks among a million sessions (--listed), on both databases',
  sockets: 'fan-out, recovery and idle sockets (--part), of bare ws and Socket.IO',
  streaming: 'many sessions that stream to a watcher each, of bare sockets',
  cdp: 'the CDP door, of Chromium itself and of a raw proxy',
  inspector: 'one long session, and the list of many, in the inspector (--part session, list)',
  postgres: '1, 2 and 4 nodes: turns, nodes-http, forwarding, failover, size (--part)',
  claude: 'a warm turn of Claude Code, of it alone',
} as const
type Part = keyof typeof PARTS

const HELP = `npm run bench -- [--only PART] [--part PART] [--seconds N] [--rounds N] [--write FILE]
npm run bench -- --compare REV [--seconds N] [--rounds N]

Parts for --only, all of them without it:
${Object.entries(PARTS)
  .map(([name, text]) => `  ${name.padEnd(9)} ${text}`)
  .join('\n')}

--compare REV  builds an older commit and measures it and this checkout in turn
--write FILE   also writes the tables to FILE (all parts: bench/results.md)
--seconds 5, --rounds 3; size: --sessions 100000, --events 1000000; sockets: --sockets 1000, --idle 10000;
inspector: --turns 10000; postgres: --lease 10000; streaming: --streams 1000. Idle sockets need as many open files per process: ulimit -n 12000 or more.`

const results = new Results()
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '5' },
    rounds: { type: 'string', default: '3' },
    sessions: { type: 'string', default: '100000' },
    events: { type: 'string', default: '1000000' },
    turns: { type: 'string', default: '10000' },
    sockets: { type: 'string', default: '1000' },
    idle: { type: 'string', default: '10000' },
    listed: { type: 'string', default: '1000000' },
    lease: { type: 'string', default: '10000' },
    streams: { type: 'string', default: '1000' },
    only: { type: 'string' },
    part: { type: 'string' },
    compare: { type: 'string' },
    write: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})
const [seconds, rounds] = [Number(values.seconds), Number(values.rounds)]

if (values.help) console.log(HELP)
else if (values.only !== undefined && !Object.hasOwn(PARTS, values.only)) {
  console.error(`There is no part ${values.only}.\n\n${HELP}`)
  process.exitCode = 2
} else await run()

async function run(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-'))
  try {
    if (values.compare === undefined) await measure(folder)
    else await compare({ folder, seconds, rounds, results }, values.compare)
    results.print()
    const isWhole = values.only === undefined && values.compare === undefined
    const file = values.write ?? (isWhole ? resultsFile() : undefined)
    if (file !== undefined) await results.write(file, ` -- ${process.argv.slice(2).join(' ')}`)
  } finally {
    await rm(folder, { recursive: true })
  }
}

const resultsFile = (): string => fileURLToPath(new URL('../../bench/results.md', import.meta.url))

async function measure(folder: string): Promise<void> {
  const common = { folder, seconds, rounds, results }
  const measures: Readonly<Record<Part, () => Promise<void>>> = {
    http: () => benchHttp(common),
    layers: () => benchLayers(common),
    peers: () => benchPeers(common),
    embedded: () => benchEmbedded(folder),
    owners: () => benchOwners(common),
    size: () => benchSize(folder, Number(values.sessions), Number(values.events)),
    list: () => benchLists({ ...common, count: Number(values.listed) }),
    sockets: () => {
      const counts = { sockets: Number(values.sockets), idleSockets: Number(values.idle) }
      return benchSockets({ ...common, ...counts }, values.part)
    },
    streaming: () => benchStreaming({ ...common, streams: Number(values.streams) }),
    cdp: () => benchCdp(common),
    inspector: async () => {
      const wanted = (part: string): boolean => (values.part ?? part) === part
      if (wanted('session')) await benchInspectorSession(common, Number(values.turns))
      if (wanted('list')) await benchInspectorList(common, Number(values.sessions))
    },
    postgres: () => benchPostgres({ ...common, leaseMs: Number(values.lease) }, values.part),
    claude: () => benchClaude(common),
  }
  for (const [part, one] of Object.entries(measures)) {
    if (values.only === undefined || values.only === part) await one()
  }
}

async function benchEmbedded(folder: string): Promise<void> {
  for (const keys of [200, 1]) {
    const callers = keys === 1 ? CALLERS : keys
    console.log(
      `\nDurable turns in process, ${callers} callers, ${keys} key(s), against bare SQLite:`,
    )
    const ratios: number[] = []
    const lags: number[] = []
    for (let round = 0; round < rounds; round += 1) {
      const ours = await embedded(join(folder, `in-${keys}-${round}.db`), keys, callers, seconds)
      const limit = bareSqlite(join(folder, `bare-${keys}-${round}.db`), keys, seconds)
      ratios.push(perSecond(ours) / perSecond(limit))
      lags.push(ours.lagP99)
      console.log(`  holdfast     ${describeLoad(ours)}; loop lag p99 ${ours.lagP99.toFixed(1)} ms`)
      console.log(`  bare sqlite  ${describeLoad(limit)}      ratio ${ratios.at(-1)?.toFixed(2)}`)
    }
    results.judge(`in-process turns, ${keys} key(s), of bare SQLite`, ratios, { least: 0.7 })
    results.judge(`event loop lag p99 in process, ${keys} key(s), ms`, lags, { most: 10 })
  }
}

async function benchSize(folder: string, sessions: number, events: number): Promise<void> {
  console.log(`\nMemory of ${sessions.toLocaleString('en')} idle sessions:`)
  const megabytes = (await idleSessions(join(folder, 'idle.db'), sessions)) / 1e6
  console.log(`  ${megabytes.toFixed(1)} MB`)
  results.judge(`memory of ${sessions} idle sessions, MB`, megabytes, { most: 50 })
  console.log('\nOpening a session in a process that has not seen it:')
  for (const size of [100, events]) {
    const ms = await openLong(join(folder, `long-${size}.db`), size)
    console.log(`  ${size.toLocaleString('en')} events: ${ms.toFixed(2)} ms`)
    results.judge(`opening ${size} events, ms`, ms, { most: 50 })
  }
}
