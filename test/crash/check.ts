/** Reads every log back from the server and compares it with what the callers were told. */
import { brokenInLog, type LoggedEvent } from '../support/log.ts'
import type { Acknowledged } from './drive.ts'
import { lostOf, type Heard } from './listener.ts'

export type Verdict = {
  readonly broken: readonly string[]
  readonly sessions: number
  readonly events: number
  readonly interrupted: number
}

export async function checkServer(
  url: string,
  acknowledged: readonly Acknowledged[],
  heard: readonly Heard[] = [],
): Promise<Verdict> {
  const broken: string[] = []
  const logs = new Map<string, readonly LoggedEvent[]>()
  for (const { id, key } of await listSessions(url)) {
    const told = new Set(
      acknowledged.filter((ack) => ack.key === key).map(({ session }) => session),
    )
    told.delete(id)
    if (told.size > 0)
      broken.push(`I1: key ${key} is ${id}, but callers were told ${[...told].join()}`)
    await atRest(url, id)
    const events = await readLog(url, id)
    logs.set(id, events)
    broken.push(...brokenInLog(events, true).map((problem) => `${key}: ${problem}`))
  }
  for (const ack of acknowledged) broken.push(...missing(ack, logs.get(ack.session) ?? []))
  for (const answer of heard) broken.push(...lostOf(answer, logs.get(answer.session) ?? []))
  const all = [...logs.values()].flat()
  const interrupted = all.filter(({ type }) => type === 'turn.interrupted').length
  return { broken, sessions: logs.size, events: all.length, interrupted }
}

async function listSessions(url: string): Promise<{ id: string; key: string }[]> {
  const response = await fetch(`${url}/v1/sessions?limit=500`)
  return ((await response.json()) as any).sessions
}

async function readLog(url: string, id: string): Promise<LoggedEvent[]> {
  const events: LoggedEvent[] = []
  for (let more = true; more;) {
    const after = events.at(-1)?.seq ?? 0
    const response = await fetch(`${url}/v1/sessions/${id}/events?after=${after}`)
    const page = (await response.json()) as any
    events.push(...page.events)
    more = page.events.length > 0 && page.hasMore
  }
  return events
}

/** Waits for the queue by waiting at its end: a turn of our own is the last one. */
async function atRest(url: string, id: string): Promise<void> {
  const response = await fetch(`${url}/v1/sessions/${id}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: { text: 'the last one', ms: 0 } }),
  })
  if (response.status !== 200) throw new Error(`${id} is stuck: ${await response.text()}`)
}

function missing(ack: Acknowledged, log: readonly LoggedEvent[]): string[] {
  const { key, turn, nonce, state, reply } = ack
  const own = log.filter((event) => event.turn === turn)
  const keyed = log.filter(({ type, keys }) => {
    return type === 'turn.started' && keys?.some((request) => request.key === nonce)
  })
  if (own.length === 0) return [`I4: ${key}: acknowledged turn ${turn} of ${nonce} is lost`]
  if (keyed.length > 1) return [`I11: ${key}: ${nonce} ran ${keyed.length} times`]
  const said = own.find(({ type }) => type === 'message.added')?.text ?? null
  if (state === 'done' && (said !== nonce || reply !== nonce)) {
    return [`I3: ${key}: ${nonce} was answered ${reply}, its log says ${said}`]
  }
  const end = state === 'queued' || state === 'running' ? null : `turn.${state}`
  if (end !== null && !own.some(({ type }) => type === end)) {
    return [`I4: ${key}: ${turn} was told to be ${state}, its log disagrees`]
  }
  return []
}
