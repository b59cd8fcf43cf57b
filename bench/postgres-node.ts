/**
 * One of several processes on one PostgreSQL: `MODE URL NAME KEYS`. A node of Holdfast with so many
 * callers in the process itself, or a bare loop of the same statements. Tells when it is warm, and
 * after a message with a number of seconds what it has done in that time.
 */
import { openHoldfast } from 'holdfast'
import { BareSessions, IN_FLIGHT } from './bare-postgres.ts'
import { drive, INPUT, percentile, type Load } from './measure.ts'
import type { Share } from './postgres.ts'

const [mode = '', url = '', name = '', count = ''] = process.argv.slice(2)
const keys = Number(count)

async function holdfastLoad(): Promise<(seconds: number) => Promise<Load>> {
  const holdfast = await openHoldfast({ store: url })
  const sessions = await Promise.all(
    Array.from({ length: keys }, (_, key) => holdfast.resolve({ key: `${name}-${key}` })),
  )
  const turn = async (caller: number): Promise<unknown> => sessions[caller]?.turn(INPUT)
  return (seconds) => drive(keys, seconds, turn)
}

async function bareLoad(): Promise<(seconds: number) => Promise<Load>> {
  const bare = await BareSessions.open(url, name, keys)
  const size = Math.ceil(keys / IN_FLIGHT)
  return async (seconds) => {
    const rounds = await drive(IN_FLIGHT, seconds, (lane) =>
      bare.turns(bare.ids.slice(lane * size, (lane + 1) * size)),
    )
    return { ...rounds, turns: rounds.turns * size }
  }
}

const load = await (mode === 'bare' ? bareLoad() : holdfastLoad())
// Long enough for the compiler, also where several share a core.
await load(2)
process.send?.('warm')
process.on('message', (seconds: number) => {
  const before = process.cpuUsage()
  void load(seconds).then(({ turns, seconds: taken, latencies }) => {
    const { user, system } = process.cpuUsage(before)
    const share: Share = {
      turns,
      seconds: taken,
      p50: percentile(latencies, 0.5),
      p99: percentile(latencies, 0.99),
      cpuMicros: user + system,
    }
    process.send?.(share)
  })
})
