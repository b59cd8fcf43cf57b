/** The session over time: turns that wait and run, asks, clients, interruptions. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { duration, fullTime, now, plural } from '../../shared/moment.ts'
import { Button, Problem } from '../../shared/parts.tsx'
import { address, setQuery } from '../../shared/router.ts'
import type { SessionModel } from '../session-model.ts'
import { barRows, type Bar, type TimeRange } from './bars.ts'
import { movedByKey, useGestures, type RangeMover } from './gestures.ts'
import { givenRange, moved, ticksOf, zoomed } from './range.ts'
import { Lanes } from './lanes.tsx'
import { TimelineModel } from './timeline-model.ts'

/** The address changes when the hand rests. */
const SETTLE_MS = 300
const TICK_PX = 110
/** So much of the width is left free on both sides of what is shown at first. */
const MARGIN = 0.03

export function Timeline({ model }: { readonly model: SessionModel }) {
  const timeline = useMemo(() => new TimelineModel(model), [model])
  useEffect(() => timeline.follow(), [timeline])
  const version = timeline.version.value
  const rows = useMemo(() => barRows(model.id, timeline.data), [version, timeline])
  const [shownBar, setShownBar] = useState<Bar | null>(null)
  const end = endOf(model, timeline)
  const { range, mover, show } = useRange(model, timeline, end)
  const plot = useRef<HTMLDivElement>(null)
  const width = useWidth(plot)
  useGestures(plot, mover)
  useReading(timeline, range)
  const ticks = ticksOf(range, Math.max(2, width / TICK_PX))
  return (
    <div class="timeline-view">
      <Controls mover={mover} range={range} timeline={timeline} />
      <div
        class="timeline"
        role="group"
        aria-label="Timeline: plus and minus zoom, the arrow keys move, 0 shows all"
        tabIndex={0}
        onKeyDown={(event) => {
          if (movedByKey(event, mover)) event.preventDefault()
        }}
      >
        <div class="timeline-axis" aria-hidden="true">
          {ticks.map(({ at, text }) => (
            <span key={at} style={{ left: `${partOf(range, at) * 100}%` }}>
              {text}
            </span>
          ))}
        </div>
        <div class="timeline-plot" ref={plot}>
          {ticks.map(({ at }) => (
            <span
              key={at}
              class="timeline-tick"
              style={{ left: `${partOf(range, at) * 100}%` }}
              aria-hidden="true"
            />
          ))}
          <Lanes {...{ rows, range, width, end, show }} point={(bar) => setShownBar(bar)} />
        </div>
      </div>
      <BarDetails bar={shownBar} />
      <Legend />
    </div>
  )
}

const partOf = ({ from, to }: TimeRange, at: number): number => (at - from) / (to - from)

/** While anything goes on, time does too. */
function endOf(model: SessionModel, { data }: TimelineModel): number {
  const isBusy = model.running.value !== null || model.queue.value.length > 0
  const isLive = isBusy && model.state.value.name === 'live'
  return isLive ? Math.max(data.lastAt, now.value) : data.lastAt
}

/** What is shown: all that is known, or what the address says, or what a hand has moved to. */
function useRange(model: SessionModel, { data }: TimelineModel, end: number) {
  const { query } = address.value
  const given = useMemo(() => givenRange(query), [query['from'], query['to']])
  const [chosen, setChosen] = useState(given)
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  useEffect(() => {
    clearTimeout(timer.current)
    setChosen(given)
  }, [given])
  useEffect(() => () => clearTimeout(timer.current), [])
  const range = chosen ?? withMargin({ from: Math.min(data.firstAt, end), to: end })
  const show = (next: TimeRange): void => {
    setChosen(next)
    clearTimeout(timer.current)
    const [from, to] = [String(Math.floor(next.from)), String(Math.ceil(next.to))]
    timer.current = setTimeout(() => setQuery({ from, to }, { replace: true }), SETTLE_MS)
  }
  const mover: RangeMover = {
    zoom: (factor, part = 0.5) => show(zoomed(range, factor, timeAt(range, part))),
    move: (part) => show(moved(range, part)),
    fit: () => {
      const from = model.info.peek()?.createdAt ?? data.firstAt
      show(withMargin({ from: Math.min(from, data.firstAt), to: end }))
    },
  }
  return { range, mover, show }
}

const timeAt = ({ from, to }: TimeRange, part: number): number => from + (to - from) * part

function withMargin({ from, to }: TimeRange): TimeRange {
  const margin = Math.max(500, (to - from) * MARGIN)
  return { from: from - margin, to: to + margin }
}

/** Reads on while there is an unknown time in what is shown. */
function useReading(timeline: TimelineModel, { from }: TimeRange): void {
  const isReading = timeline.isReading.value
  const isKnown = timeline.from.value === 0 || timeline.data.firstAt <= from
  const hasFailed = timeline.problem.value !== ''
  useEffect(() => {
    if (!isReading && !isKnown && !hasFailed) void timeline.readEarlier()
  }, [timeline, isReading, isKnown, hasFailed])
}

function useWidth(box: { readonly current: HTMLElement | null }): number {
  const [width, setWidth] = useState(800)
  useEffect(() => {
    const { current } = box
    if (current === null) return
    const observer = new ResizeObserver(() => setWidth(current.clientWidth))
    observer.observe(current)
    return () => observer.disconnect()
  }, [])
  return width
}

type ControlsProps = {
  readonly mover: RangeMover
  readonly range: TimeRange
  readonly timeline: TimelineModel
}

function Controls({ mover, range, timeline }: ControlsProps) {
  const { data } = timeline
  const from = timeline.from.value
  const isCut = from > 0 && range.from < data.firstAt
  return (
    <div class="timeline-controls filters">
      <Button label="Zoom in" onClick={() => mover.zoom(0.5)}>
        +
      </Button>
      <Button label="Zoom out" onClick={() => mover.zoom(2)}>
        −
      </Button>
      <Button label="Earlier" onClick={() => mover.move(-0.5)}>
        ←
      </Button>
      <Button label="Later" onClick={() => mover.move(0.5)}>
        →
      </Button>
      <Button onClick={() => mover.fit()}>Show all</Button>
      <span class="muted small timeline-span" role="status">
        {duration(range.to - range.from)}
        {timeline.isReading.value && isCut ? `, reading back from event ${from}…` : ''}
        {timeline.isFull && isCut ? `, without the first ${plural(from, 'event')}` : ''}
      </span>
      {timeline.problem.value === '' ? null : <Problem>{timeline.problem.value}</Problem>}
    </div>
  )
}

/** What the mouse or the focus is on, in words. */
function BarDetails({ bar }: { readonly bar: Bar | null }) {
  if (bar === null) {
    return (
      <p class="timeline-details muted">
        Turn the wheel or press + and − to zoom, drag to move, choose a bar to open it.
      </p>
    )
  }
  const { label, from, to } = bar
  const until = to === null ? 'now' : fullTime(to)
  return (
    <p class="timeline-details">
      {label}{' '}
      <span class="muted small">
        {fullTime(from)}
        {to === from ? '' : ` to ${until}`}
      </span>
    </p>
  )
}

const KINDS = [
  ['done', 'done'],
  ['running', 'running'],
  ['failed', 'failed'],
  ['cancelled', 'cancelled, interrupted or expired'],
  ['wait', 'waiting'],
  ['ask', 'ask'],
  ['client', 'client'],
  ['gap', 'connection lost'],
] as const

function Legend() {
  return (
    <ul class="timeline-legend small muted" aria-label="Colours">
      {KINDS.map(([kind, words]) => (
        <li key={kind}>
          <span class="bar" data-kind={kind} aria-hidden="true" /> {words}
        </li>
      ))}
    </ul>
  )
}
