/** In a process of its own: `URL COUNT`, the memory that so many sessions take on a node. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { openHoldfast, type Holdfast } from 'holdfast'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

const [url = '', count = ''] = process.argv.slice(2)
const sessions = Number(count)
// All are held, however idle: what is let go takes nothing.
const holdfast = await openHoldfast({ store: url, limits: { idleSessionsMax: sessions * 2 } })

async function makeSessions(of: Holdfast, prefix: string, many: number): Promise<void> {
  let next = 0
  const work = async (): Promise<void> => {
    while (next < many) await of.turn({ key: `${prefix}-${next++}` }, 'hello')
  }
  await Promise.all(Array.from({ length: 200 }, work))
}

function heapUsed(): number {
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

await makeSessions(holdfast, 'warm', 1_000)
const before = heapUsed()
await makeSessions(holdfast, 'idle', sessions)
process.send?.({ sessions, megabytes: (heapUsed() - before) / 1e6 })
