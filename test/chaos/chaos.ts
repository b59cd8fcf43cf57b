/** One chaos: a world, a load, faults one after the other, and what the checker says about it. */
import { setTimeout } from 'node:timers/promises'
import { check, type LogEvent } from './check.ts'
import { Load } from './load.ts'
import { World, type Bug, type Fault } from './world.ts'

export type ChaosOptions = {
  readonly seed: number
  readonly faults: number
  readonly bug?: Bug
  /** Only these, else all. */
  readonly kinds?: readonly Fault[]
  readonly tell?: (line: string) => void
}

export type ChaosReport = {
  readonly problems: readonly string[]
  readonly faults: readonly string[]
  readonly acknowledged: number
  readonly unknown: number
  readonly events: number
}

const KINDS: readonly Fault[] = [
  'kill',
  'pause',
  'cut-database',
  'cut-peers',
  'restart-database',
  'stop',
]

const KEYS = ['a-long', 'b-long', 'c-long', 'd', 'e', 'f']

export async function chaos(options: ChaosOptions): Promise<ChaosReport> {
  const { seed, faults, bug = 'none', kinds = KINDS, tell = () => undefined } = options
  const world = await World.create(seed, bug)
  try {
    const load = new Load(world.urls, { seed, keys: KEYS })
    for (let done = 0; done < faults; done += 1) {
      await setTimeout(world.random.between(200, 800))
      // Each kind in turn, so that a short chaos has them all; which node, how long: by chance.
      await world.suffer(kinds[done % kinds.length]!)
      tell(world.faults.at(-1) ?? '')
    }
    await load.end()
    return await judge(world, load)
  } finally {
    await world.close()
  }
}

async function judge(world: World, { sent }: Load): Promise<ChaosReport> {
  const sessions = new Map<string, readonly string[]>()
  const logs = new Map<string, readonly LogEvent[]>()
  for (const key of KEYS) {
    const { sessions: found } = await get(world, `/v1/sessions?key=${key}`)
    const ids = (found as { id: string }[]).map(({ id }) => id)
    sessions.set(key, ids)
    for (const id of ids) logs.set(id, await readLog(world, id))
  }
  const problems = check({ sent, sessions, logs, ticks: world.ticks() })
  const acknowledged = sent.filter(({ answer }) => answer !== null).length
  const events = [...logs.values()].reduce((sum, log) => sum + log.length, 0)
  const unknown = sent.length - acknowledged
  return { problems, faults: world.faults, acknowledged, unknown, events }
}

/** When nothing runs or waits in it any more. */
async function readLog(world: World, id: string): Promise<readonly LogEvent[]> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const { running, queued } = await get(world, `/v1/sessions/${id}`)
    if ((running ?? null) === null && (queued ?? []).length === 0) break
    await setTimeout(50)
  }
  const log: LogEvent[] = []
  for (let hasMore = true; hasMore;) {
    const page = await get(world, `/v1/sessions/${id}/events?after=${log.length}`)
    log.push(...(page.events as LogEvent[]))
    hasMore = page.hasMore === true && page.events.length > 0
  }
  return log
}

/** From any node, as soon as one answers. */
async function get(world: World, path: string): Promise<any> {
  let why: unknown
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      const url = world.urls[attempt % world.urls.length]!
      const response = await fetch(`${url}${path}`, { signal: AbortSignal.timeout(10_000) })
      if (response.status === 200) return await response.json()
      why = await response.text()
    } catch (thrown) {
      why = thrown
    }
    await setTimeout(100)
  }
  throw new Error(`no node answers ${path}: ${String(why)}`)
}
