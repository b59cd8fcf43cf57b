/** `holdfast top`: what a server does now, again and again. */
import { setTimeout } from 'node:timers/promises'
import { systemClock } from '../platform/clock.ts'
import type { OpenAskListView, SessionListView, SessionRowView } from '../wire/views.ts'
import { defineCommand, number, toggle } from './command.ts'
import { counted, durationText, isoTime, printable, printJson } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

type Percentiles = { readonly [Name in 'p50' | 'p95' | 'p99']: number | null }
type Minute = {
  readonly turns: { readonly [Name in 'started' | 'done' | 'failed']: number }
  readonly refused: number
  readonly errors: number
  readonly wait: Percentiles
  readonly duration: Percentiles
}
type Stats = {
  readonly minutes: readonly Minute[]
  readonly now: Readonly<Record<string, number>>
}
type Node = {
  readonly id: string
  readonly url: string | null
  readonly isAlive: boolean
  readonly sessions: number | null
  readonly version: string
}

type Moment = {
  readonly at: number
  readonly sessions: readonly SessionRowView[]
  readonly asks: { readonly shown: OpenAskListView['asks']; readonly isMore: boolean }
  readonly counts: Readonly<Record<string, string>>
  /** Null: the token may not see them. */
  readonly stats: Stats | null
  readonly nodes: readonly Node[] | null
}

const BUSY = ['running', 'waiting', 'queued'] as const
const ROWS = 15
const ASKS = 5
const CLEAR = '\u001B[H\u001B[J'

export const top = defineCommand({
  name: 'top',
  summary:
    'Shows what a running server does now: sessions that run, wait and are queued, asks, turns ' +
    'per minute, times and nodes (the last three need the scope admin). At a terminal it is ' +
    'shown anew until Ctrl-C; else it is printed once for each interval.',
  flags: {
    once: toggle('show it once, and end'),
    interval: number('SECONDS', 'how often it is read').between(1, 3_600).or(2),
    json: toggle('one JSON object for each reading, for programs'),
    ...REMOTE_FLAGS,
  },
  async run({ once, interval, json, ...values }) {
    const remote = new Remote(values)
    for (;;) {
      const moment = await readMoment(remote)
      if (json) printJson([moment])
      else show(moment, `${remote.url}${once ? '' : `, every ${interval} s`}`, once)
      if (once) return
      await setTimeout(interval * 1_000)
    }
  },
})

async function readMoment(remote: Remote): Promise<Moment> {
  const pages = BUSY.map((status) => sessionsBy(remote, status))
  const [asks, stats, nodes, ...lists] = await Promise.all([
    remote.json<OpenAskListView>(`/v1/asks?limit=${ASKS}`),
    unlessForbidden(remote.json<Stats>('/v1/stats')),
    unlessForbidden(remote.json<{ nodes: readonly Node[] }>('/v1/nodes')),
    ...pages,
  ])
  const counts = BUSY.map((status, index) => [status, countText(lists[index]!.count)] as const)
  return {
    at: systemClock.now(),
    sessions: lists.flatMap(({ sessions }) => sessions),
    asks: { shown: asks.asks, isMore: asks.nextCursor !== null },
    counts: Object.fromEntries(counts),
    stats,
    nodes: nodes?.nodes ?? null,
  }
}

function sessionsBy(remote: Remote, status: string): Promise<SessionListView> {
  const query = `status=${status}&sort=activity&count=true&limit=${ROWS}`
  return remote.json<SessionListView>(`/v1/sessions?${query}`)
}

const countText = (count: SessionListView['count']): string =>
  count === undefined ? '?' : `${count.atLeast}${count.isExact ? '' : '+'}`

async function unlessForbidden<Answer>(asked: Promise<Answer>): Promise<Answer | null> {
  try {
    return await asked
  } catch (error) {
    if ((error as { code?: unknown }).code === 'forbidden') return null
    throw error
  }
}

function show(moment: Moment, where: string, once: boolean): void {
  const isTerminal = process.stdout.isTTY && !once
  const columns = isTerminal ? process.stdout.columns : Infinity
  const most = isTerminal ? Math.max(5, process.stdout.rows - 1) : Infinity
  const lines = linesOf(moment, where).map((line) => Array.from(line).slice(0, columns).join(''))
  console.log((isTerminal ? CLEAR : '') + lines.slice(0, most).join('\n'))
}

function linesOf({ at, sessions, asks, counts, stats, nodes }: Moment, where: string): string[] {
  const busy = BUSY.map((status) => `${counts[status]} ${status}`).join(', ')
  const lines = [`holdfast  ${printable(where)}  ${isoTime(at)}`, `sessions  ${busy}`]
  if (stats !== null) lines.push(...statLines(stats))
  for (const { id, url, isAlive, sessions: owned, version } of nodes ?? []) {
    // The only node of a store does not count the sessions that it owns.
    const count = owned === null ? [] : [counted(owned, 'session')]
    const facts = [isAlive ? 'alive' : 'gone', ...count, version]
    lines.push(`node      ${printable(url ?? id)}  ${printable(facts.join(', '))}`)
  }
  const more = asks.isMore ? '+' : ''
  lines.push(`asks      ${asks.shown.length}${more}`)
  for (const { session, question, openedAt } of asks.shown) {
    const name = session.key ?? session.id
    const waited = durationText(at - openedAt)
    lines.push(`  ${printable(name)}  ${printable(question)}  ${waited}`)
  }
  for (const { status, key, id, agent, queuedTurns, updatedAt } of sessions) {
    const waits = queuedTurns === 0 ? '' : `  ${queuedTurns} wait`
    const ago = durationText(at - updatedAt)
    lines.push(`${status.padEnd(8)}  ${printable(key ?? id)}  ${printable(agent)}  ${ago}${waits}`)
  }
  return lines
}

function statLines({ minutes, now }: Stats): readonly string[] {
  // The last one is not over.
  const minute = minutes.at(-2) ?? minutes.at(-1)
  if (minute === undefined) return []
  const { turns, refused, errors, wait, duration } = minute
  const times = ({ p50, p95, p99 }: Percentiles): string =>
    [p50, p95, p99].map((ms) => (ms === null ? '-' : `${Math.round(ms)}`)).join(' / ')
  const started = `${turns.started} started, ${turns.done} done, ${turns.failed} failed`
  const { attachments = 0, watchers = 0, sockets = 0 } = now
  return [
    `turns/min ${started}, ${refused} refused, ${errors} errors`,
    `ms        waited ${times(wait)}, took ${times(duration)} (p50 / p95 / p99)`,
    `clients   ${attachments} attached, ${watchers} watching, ${sockets} sockets`,
  ]
}
