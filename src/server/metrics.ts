/** What `/metrics` says, as Prometheus text. `metric-table.ts` has all names. */
import { Histogram, type Counters } from '../core/index.ts'
import type { ServerContext } from '../doors/exchange.ts'
import { VERSION } from '../wire/version.ts'
import { within } from './limits.ts'
import { METRICS, type MetricName } from './metric-table.ts'
import type { Recorder } from './recorder.ts'
import type { Webhooks } from './webhooks/webhooks.ts'

export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** How long the database is waited for. */
const OWNED_MS_MAX = 1_000

/** A number or a histogram, or several by their labels' values. Unknown: the metric is left out. */
type MetricValue =
  | number
  | Histogram
  | readonly (readonly [values: readonly string[], value: number | Histogram])[]
  | null
  | undefined

type MetricValues = Partial<Readonly<Record<MetricName, MetricValue>>>

export async function renderMetrics(
  context: ServerContext,
  recorder: Recorder,
  webhooks: Webhooks,
): Promise<string> {
  const values: MetricValues = {
    ...counted(context.holdfast.authority.counters),
    ...measured(context, recorder),
    ...agentValues(context),
    ...loadValues(context),
    ...(await clusterValues(context)),
    ...browserValues(context),
    ...(await webhookValues(context, webhooks)),
    ...processValues(),
  }
  return Object.keys(METRICS)
    .map((name) => metricText(name as MetricName, values[name as MetricName]))
    .join('')
}

type CounterName<Name extends string> = `holdfast_${SnakeCase<Name>}_total`
type SnakeCase<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${SnakeCase<Rest>}`
  : ''

/** Each counter has a row in the table: the compiler says so. */
function counted(counters: Counters): Record<CounterName<keyof Counters>, number> {
  const named = Object.entries(counters).map(([name, count]) => {
    return [`holdfast_${snakeCase(name)}_total`, Number(count)]
  })
  return Object.fromEntries(named) as Record<CounterName<keyof Counters>, number>
}

function measured({ holdfast, answered, forwardTimes }: ServerContext, recorder: Recorder) {
  const { figures } = holdfast.authority
  return {
    holdfast_queue_wait_seconds: figures.queueWait,
    holdfast_commit_duration_seconds: figures.commit,
    holdfast_commit_appends: figures.commitAppends,
    holdfast_resume_duration_seconds: figures.resume,
    holdfast_ask_duration_seconds: byLabel(figures.asks),
    holdfast_forward_duration_seconds: forwardTimes,
    holdfast_http_answers_total: byLabel(answered),
    holdfast_event_loop_lag_seconds: recorder.delay,
    holdfast_event_loop_delay_seconds: byLabel(Object.entries(recorder.takeDelay())),
  } satisfies MetricValues
}

function agentValues({ holdfast }: ServerContext) {
  const agents = [...holdfast.authority.figures.agents]
  return {
    holdfast_first_output_seconds: agents.map(
      ([agent, { firstOutput }]) => [[agent], firstOutput] as const,
    ),
    holdfast_turn_duration_seconds: agents.flatMap(([agent, { durations }]) =>
      Array.from(durations, ([end, histogram]) => [[agent, end], histogram] as const),
    ),
    holdfast_tokens_total: agents.flatMap(([agent, { used }]) => [
      [[agent, 'input'], used.inputTokens] as const,
      [[agent, 'cached'], used.cachedTokens] as const,
      [[agent, 'output'], used.outputTokens] as const,
    ]),
    holdfast_cost_usd_total: agents.map(([agent, { used }]) => [[agent], used.costUsd] as const),
  } satisfies MetricValues
}

function loadValues({ holdfast, sockets, isDraining }: ServerContext) {
  const { load, heldCount } = holdfast.authority
  return {
    holdfast_sessions_held: heldCount,
    holdfast_sessions: byLabel(Object.entries(load.sessions)),
    holdfast_turns: byLabel(Object.entries(load.turns)),
    holdfast_attachments: byLabel(Object.entries(load.attachments)),
    holdfast_watchers: load.watchers,
    holdfast_asks: load.asks,
    holdfast_sockets: sockets(),
    holdfast_draining: Number(isDraining()),
  } satisfies MetricValues
}

/** Only where other nodes may be: elsewhere a lease never ends. */
async function clusterValues({ holdfast, forwards }: ServerContext) {
  const { lease, store, node } = holdfast.authority
  // A missing gauge means that the database did not answer in time.
  const owned = store.cluster?.owned(node).catch(() => null)
  return {
    holdfast_sessions_owned: owned === undefined ? null : await within(OWNED_MS_MAX, owned),
    holdfast_lease_age_seconds: lease && lease.ageMs / 1e3,
    holdfast_lease_remaining_seconds: lease && lease.leftMs / 1e3,
    holdfast_forwards_total: forwards && byLabel(Object.entries(forwards)),
  } satisfies MetricValues
}

function browserValues({ browsers }: ServerContext) {
  const counts = browsers()?.countsNow()
  if (counts === undefined) return {}
  return {
    holdfast_browsers: counts['browsers'],
    holdfast_browser_sessions: counts['sessions'],
    holdfast_browser_clients: counts['clients'],
    holdfast_browser_pages: counts['pages'],
    holdfast_cdp_sessions: counts['attached'],
    holdfast_cdp_commands_waiting: counts['waiting'],
  } satisfies MetricValues
}

/** As they are stored, but for the attempts, which are this node's. */
async function webhookValues({ holdfast }: ServerContext, webhooks: Webhooks) {
  if (webhooks.all.length === 0) return {}
  // Missing gauges mean that the store did not answer in time.
  const views =
    (await within(
      OWNED_MS_MAX,
      webhooks.views().catch(() => null),
    )) ?? []
  const now = holdfast.authority.clock.now()
  return {
    holdfast_webhook_attempts_total: webhooks.all.flatMap(({ options, counts }) =>
      Object.entries(counts).map(([outcome, count]) => [[options.name, outcome], count] as const),
    ),
    holdfast_webhook_failing_seconds: views.map(
      ({ name, failingSince }) =>
        [[name], failingSince === null ? 0 : Math.max(0, now - failingSince) / 1e3] as const,
    ),
    holdfast_webhook_paused: views.map(
      ({ name, state }) => [[name], Number(state === 'paused')] as const,
    ),
  } satisfies MetricValues
}

function processValues() {
  const { rss, heapUsed } = process.memoryUsage()
  return {
    holdfast_build_info: [[[VERSION, process.version], 1]],
    process_resident_memory_bytes: rss,
    process_uptime_seconds: process.uptime(),
    nodejs_heap_size_used_bytes: heapUsed,
  } satisfies MetricValues
}

/** Values by the one label that they have. */
function byLabel<Value extends number | Histogram>(
  values: Iterable<readonly [string | number, Value]>,
): readonly (readonly [readonly string[], Value])[] {
  return Array.from(values, ([name, value]) => [[snakeCase(String(name))], value] as const)
}

function metricText(name: MetricName, value: MetricValue): string {
  if (value === null || value === undefined) return ''
  const { type, help, labels = [] } = METRICS[name]
  const isOne = typeof value === 'number' || value instanceof Histogram
  const samples = isOne ? [[[], value] as const] : value
  const lines = samples.flatMap(([values, sample]) => {
    const pairs = labels.map((label, index) => `${label}="${escaped(values[index] ?? '')}"`)
    return typeof sample === 'number'
      ? [`${name}${braced(pairs)} ${sample}\n`]
      : histogramLines(name, pairs, sample)
  })
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

function histogramLines(
  name: string,
  pairs: readonly string[],
  { bounds, counts, sum }: Histogram,
): readonly string[] {
  let count = 0
  const buckets = Array.from(counts, (added, index) => {
    count += added
    return `${name}_bucket${braced([...pairs, `le="${bounds[index] ?? '+Inf'}"`])} ${count}\n`
  })
  return [
    ...buckets,
    `${name}_sum${braced(pairs)} ${sum}\n`,
    `${name}_count${braced(pairs)} ${count}\n`,
  ]
}

function braced(pairs: readonly string[]): string {
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
