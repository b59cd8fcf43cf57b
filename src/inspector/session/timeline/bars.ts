/** What happened, as bars in lanes: which there are, and what of them is drawn at a zoom. */
import { duration } from '../../shared/moment.ts'
import { sessionHref } from '../../shared/router.ts'
import { shownName } from '../../shared/shown-text.ts'
import type { ClientStep, TimelineData, TimelineTurn } from './timeline-data.ts'

export type Bar = {
  readonly key: string
  readonly kind: string
  readonly from: number
  /** Null: it is not over. */
  readonly to: number | null
  readonly label: string
  readonly href: string
}

export type BarRow = {
  readonly name: string
  /** Bars that overlap are in different lanes. */
  readonly lanes: readonly (readonly Bar[])[]
}

/** More that overlap share the last lane. */
const LANES_MAX = 5

export function barRows(session: string, data: TimelineData): readonly BarRow[] {
  const turns = [...data.turns.values()]
  const turnHref = (id: string): string => sessionHref(session, undefined, { turn: id })
  const eventHref = (seq: number): string => sessionHref(session, 'log', { event: String(seq) })
  const rows = [
    { name: 'Turns', bars: turns.flatMap((turn) => runBar(turn, turnHref(turn.id))) },
    { name: 'Waiting', bars: turns.flatMap((turn) => waitBar(turn, turnHref(turn.id))) },
    { name: 'Asks', bars: askBars(data, eventHref) },
    { name: 'Clients', bars: clientBars(data, eventHref) },
    {
      name: 'Events',
      bars: data.marks.map(({ seq, at, kind, text }) => {
        const label = shownName(text)
        return { key: `mark ${seq}`, kind, from: at, to: at, label, href: eventHref(seq) }
      }),
    },
  ]
  return rows
    .filter(({ bars, name }) => bars.length > 0 || name === 'Turns')
    .map(({ name, bars }) => ({ name, lanes: inLanes(bars) }))
}

function nameOf({ id, text }: TimelineTurn): string {
  return text === '' ? `Turn ${id}` : `Turn ${id} “${shownName(text)}”`
}

function runBar(turn: TimelineTurn, href: string): readonly Bar[] {
  const { id, startedAt, endedAt, outcome, why } = turn
  if (startedAt === null) return []
  const time = endedAt === null ? '' : ` after ${duration(endedAt - startedAt)}`
  const reason = why === '' ? '' : `: ${shownName(why)}`
  const label = `${nameOf(turn)}: ${outcome ?? 'running'}${time}${reason}`
  const kind = outcome ?? 'running'
  return [{ key: `run ${id}`, kind, from: startedAt, to: endedAt, label, href }]
}

function waitBar(turn: TimelineTurn, href: string): readonly Bar[] {
  const { id, queuedAt, startedAt, endedAt, outcome } = turn
  if (queuedAt === null) return []
  const to = startedAt ?? endedAt
  const time = to === null ? 'waits for its turn' : `waited ${duration(to - queuedAt)}`
  const end = startedAt === null && outcome !== null ? `, ${outcome}` : ''
  const label = `${nameOf(turn)}: ${time}${end}`
  return [{ key: `wait ${id}`, kind: 'wait', from: queuedAt, to, label, href }]
}

function askBars(data: TimelineData, hrefOf: (seq: number) => string): readonly Bar[] {
  return [...data.asks.values()].flatMap(
    ({ id, question, openedAt, openedSeq, settledAt, outcome }) => {
      if (openedAt === null || openedSeq === null) return []
      const end =
        settledAt === null
          ? 'waits for an answer'
          : `${outcome ?? ''} after ${duration(settledAt - openedAt)}`
      const label = `Ask “${shownName(question)}”: ${end}`
      const key = `ask ${id}`
      return [{ key, kind: 'ask', from: openedAt, to: settledAt, label, href: hrefOf(openedSeq) }]
    },
  )
}

function clientBars(data: TimelineData, hrefOf: (seq: number) => string): readonly Bar[] {
  return [...data.clients].flatMap(([id, unsorted]) => {
    const steps = unsorted.toSorted((one, other) => one.seq - other.seq)
    return steps.flatMap((step, index) => {
      if (step.type === 'ended') return []
      const next = steps[index + 1]
      const isHere = step.type !== 'detached'
      const label = `Client ${shownName(id.slice(0, 8))}: ${clientWords(step, next)}`
      const [from, to] = [step.at, next?.at ?? null]
      const kind = isHere ? 'client' : 'gap'
      return [{ key: `client ${step.seq}`, kind, from, to, label, href: hrefOf(step.seq) }]
    })
  })
}

function clientWords(step: ClientStep, next: ClientStep | undefined): string {
  const state = step.type === 'detached' ? 'connection lost' : 'connected'
  if (next === undefined) return state
  const time = `${state} for ${duration(next.at - step.at)}`
  return next.type === 'ended' ? `${time}, then ended: ${shownName(next.words)}` : time
}

/** Puts each bar into the first lane in which nothing is in its way. */
function inLanes(bars: readonly Bar[]): readonly (readonly Bar[])[] {
  const lanes: Bar[][] = [[]]
  const ends: number[] = [Number.NEGATIVE_INFINITY]
  for (const bar of bars.toSorted((one, other) => one.from - other.from)) {
    const free = ends.findIndex((end) => end <= bar.from)
    const lane = free === -1 ? Math.min(lanes.length, LANES_MAX - 1) : free
    const known = lanes[lane] ?? []
    known.push(bar)
    lanes[lane] = known
    ends[lane] = Math.max(ends[lane] ?? 0, bar.to ?? Number.POSITIVE_INFINITY)
  }
  return lanes
}

export type TimeRange = { readonly from: number; readonly to: number }

/** A bar as it is drawn, in pixels; or several that are too narrow to be told apart. */
export type DrawnBar = { readonly bar: Bar; readonly count: number; x: number; width: number }

/** A narrower bar is drawn so wide, and joins narrow neighbours up to so many pixels. */
const NARROW_PX = 4
const JOINED_PX_MAX = 24
/** Of several in one, the kind that a reader should not miss. */
const WORST = ['failover', 'failed', 'interrupted', 'interruption', 'running', 'ask']

/** The bars of a lane that are in the range; `end`: that of bars that are not over. */
export function drawnBars(
  lane: readonly Bar[],
  { from, to }: TimeRange,
  { width, end }: { readonly width: number; readonly end: number },
): readonly DrawnBar[] {
  const scale = width / (to - from)
  const drawn: DrawnBar[] = []
  for (const bar of lane) {
    const until = bar.to ?? Math.max(end, bar.from)
    if (until < from || bar.from > to) continue
    const x = Math.max(-2, (bar.from - from) * scale)
    const right = Math.min(width + 2, (until - from) * scale)
    const own = { bar, count: 1, x, width: Math.max(NARROW_PX, right - x) }
    const before = drawn.at(-1)
    const mayJoin = before !== undefined && (before.count > 1 || before.width <= NARROW_PX)
    const joins = mayJoin && own.width <= NARROW_PX && x < before.x + before.width
    if (joins && before.width < JOINED_PX_MAX) drawn[drawn.length - 1] = joined(before, own, until)
    else drawn.push(own)
  }
  return drawn
}

function joined(one: DrawnBar, other: DrawnBar, until: number): DrawnBar {
  const count = one.count + other.count
  const kind = [one, other].map(({ bar }) => bar.kind).sort((a, b) => rank(a) - rank(b))[0] ?? ''
  const to = Math.max(one.bar.to ?? 0, until)
  const bar = { ...one.bar, kind, to, label: `${count} close together: choose to zoom in` }
  const right = Math.max(one.x + one.width, other.x + other.width)
  return { bar, count, x: one.x, width: right - one.x }
}

function rank(kind: string): number {
  const place = WORST.indexOf(kind)
  return place === -1 ? WORST.length : place
}
