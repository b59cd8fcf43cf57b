/** The last hour of a node in charts, and what it does now. */
import { bytes } from '../browsers/browser-list.ts'
import { useNodes } from '../nodes/node-list.ts'
import { may } from '../shared/me.ts'
import { duration, now, plural } from '../shared/moment.ts'
import { Problem, Select } from '../shared/parts.tsx'
import { usePolled } from '../shared/polled.ts'
import { address, setQuery } from '../shared/router.ts'
import { shownName } from '../shared/shown-text.ts'
import { Chart } from './chart.tsx'
import { readStats, type Minute, type Stats } from './stats.ts'

const STATS_MS = 5_000

export function Charts() {
  const isAllowed = may('admin')
  const { node = '' } = address.value.query
  const { value, problem } = usePolled(
    () => readStats(node),
    STATS_MS,
    isAllowed === true ? node : null,
  )
  return (
    <section class="charts" aria-labelledby="charts-title">
      <div class="section-head">
        <h2 id="charts-title">The last hour</h2>
        {value === null ? null : (
          <span class="muted small">
            server up {duration(Math.max(0, now.value - value.since))}
          </span>
        )}
        <span class="spring" />
        <NodeChoice node={node} />
      </div>
      {isAllowed === false ? (
        <p class="muted">The figures of the server need a token with the scope admin.</p>
      ) : null}
      {problem === null || value !== null ? null : <Problem>{problem}</Problem>}
      {value === null ? null : <AllCharts stats={value} />}
    </section>
  )
}

/** Each node measures itself. */
function NodeChoice({ node }: { readonly node: string }) {
  const nodes = useNodes()?.filter(({ isAlive }) => isAlive) ?? []
  if (nodes.length < 2) return null
  const options = nodes.map(({ id, isSelf }) => [isSelf ? '' : id, shownName(id)] as const)
  return (
    <Select
      aria-label="Figures of the node"
      options={options}
      value={node}
      onChange={(value) => setQuery({ node: value })}
    />
  )
}

const count = (value: number): string => value.toLocaleString()

function AllCharts({ stats: { minutes, now: current } }: { readonly stats: Stats }) {
  const times = minutes.map(({ at }) => at)
  const common = { times, show: count, kind: 'bars' } as const
  const turns = sumOf(minutes, (minute) => minute.turns.started)
  const failed = sumOf(minutes, (minute) => minute.turns.failed + minute.turns.interrupted)
  const asks = sumOf(minutes, (minute) => minute.asks.opened)
  const errors = sumOf(minutes, ({ errors }) => errors)
  const refused = sumOf(minutes, ({ refused }) => refused)
  return (
    <div class="chart-grid">
      <Chart
        {...common}
        title="Turns per minute"
        figure={count(turns)}
        note={`turns · ${count(failed)} failed`}
        series={[
          seriesOf(minutes, 'done', 'accent', ({ turns }) => turns.done),
          seriesOf(minutes, 'failed', 'bad', ({ turns }) => turns.failed + turns.interrupted),
          seriesOf(minutes, 'cancelled', 'quiet', ({ turns }) => turns.cancelled),
        ]}
      />
      <Times title="Wait before a turn starts" minutes={minutes} of="wait" />
      <Times title="Duration of turns" minutes={minutes} of="duration" />
      <Chart
        {...common}
        title="Asks"
        figure={count(asks)}
        note={`opened · ${count(current.asks)} open now`}
        series={[seriesOf(minutes, 'opened', 'warn', ({ asks }) => asks.opened)]}
      />
      <Chart
        {...common}
        title="Errors"
        figure={count(errors)}
        note={`answers 5xx · ${plural(refused, 'turn')} refused (429)`}
        series={[
          seriesOf(minutes, '5xx', 'bad', ({ errors }) => errors),
          seriesOf(minutes, '429', 'quiet', ({ refused }) => refused),
        ]}
      />
      <Now now={current} />
    </div>
  )
}

const sumOf = (minutes: readonly Minute[], of: (minute: Minute) => number): number =>
  minutes.reduce((sum, minute) => sum + of(minute), 0)

function seriesOf(
  minutes: readonly Minute[],
  name: string,
  tone: string,
  of: (minute: Minute) => number | null,
) {
  return { name, tone, values: minutes.map(of) }
}

type TimesProps = {
  readonly title: string
  readonly minutes: readonly Minute[]
  readonly of: 'wait' | 'duration'
}

function Times({ title, minutes, of }: TimesProps) {
  const last = minutes.findLast((minute) => minute[of].p50 !== null)?.[of]
  const [p50, p95] = [last?.p50 ?? null, last?.p95 ?? null]
  return (
    <Chart
      title={title}
      kind="lines"
      times={minutes.map(({ at }) => at)}
      show={duration}
      figure={p50 === null ? '–' : duration(p50)}
      note={p95 === null ? 'no turn' : `median · p95 ${duration(p95)}`}
      series={[
        seriesOf(minutes, 'p95', 'quiet', (minute) => minute[of].p95),
        seriesOf(minutes, 'p50', 'busy', (minute) => minute[of].p50),
      ]}
    />
  )
}

function Now({ now }: { readonly now: Stats['now'] }) {
  const rows: readonly (readonly [string, string])[] = [
    ['Turns running', count(now.running)],
    ['Turns queued', count(now.queued)],
    ['Sessions in memory', count(now.sessionsHeld)],
    ['Clients attached', `${count(now.attachments)}, ${count(now.watchers)} watching`],
    ['Memory', bytes(now.rssBytes)],
    ['Event loop delay', duration(now.eventLoopDelayMs)],
  ]
  return (
    <div class="chart">
      <p class="chart-title">Now</p>
      <dl class="now">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  )
}
