/** Gathers what the checker needs to know from a world that has come to rest. */
import { setTimeout } from 'node:timers/promises'
import type { History, LogEvent } from './check.ts'
import type { Answer, Client } from './clients.ts'
import type { Look, Sent } from './load.ts'
import type { World } from './world.ts'

export type Told = {
  readonly keys: readonly string[]
  readonly sent: readonly Sent[]
  readonly looks?: readonly Look[]
  readonly answers?: readonly Answer[]
  readonly clients?: readonly Client[]
  readonly lateTicksMax: number
}

/** How long a client may take to catch up once everything is well again. */
const CATCH_UP_MS = 20_000

export async function historyOf(world: World, told: Told): Promise<History> {
  const { keys, sent, looks = [], answers = [], clients = [], lateTicksMax } = told
  const sessions = new Map<string, readonly string[]>()
  const ends = new Map<string, number>()
  for (const key of keys) {
    const { sessions: found } = await get(world, `/v1/sessions?key=${key}`)
    const ids = (found as { id: string }[]).map(({ id }) => id)
    sessions.set(key, ids)
    for (const id of ids) ends.set(id, await restOf(world, id))
  }
  const end = (client: Client): number => ends.get(client.seen.session) ?? 0
  await Promise.all(clients.map((client) => client.reach(end(client), CATCH_UP_MS)))
  const seen = clients.map((client) => client.seen)
  // To part is an event too: read after it, the logs have all that anybody was told.
  for (const client of clients) client.leave()
  const logs = new Map<string, readonly LogEvent[]>()
  for (const id of ends.keys()) logs.set(id, await readLog(world, id))
  const said = { sent, looks, answers, clients: seen }
  return { ...said, sessions, logs, ends, testimony: world.testimony(), lateTicksMax }
}

/** The position of the session when nothing runs or waits in it any more. */
async function restOf(world: World, id: string): Promise<number> {
  for (let attempt = 0; ; attempt += 1) {
    const { running, queued, seq } = await get(world, `/v1/sessions/${id}`)
    if ((running ?? null) === null && (queued ?? []).length === 0) return seq as number
    if (attempt > 400) throw new Error(`${id} does not come to rest: ${running} runs`)
    await setTimeout(50)
  }
}

async function readLog(world: World, id: string): Promise<readonly LogEvent[]> {
  const log: LogEvent[] = []
  for (let hasMore = true; hasMore;) {
    const page = await get(world, `/v1/sessions/${id}/events?after=${log.length}`)
    log.push(...(page.events as LogEvent[]))
    hasMore = page.hasMore === true && page.events.length > 0
  }
  return log
}

/** From any node, as soon as one answers; the last one is asked first. */
async function get(world: World, path: string): Promise<any> {
  let why: unknown
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      const url = world.urls.at(-1 - (attempt % world.urls.length))!
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
