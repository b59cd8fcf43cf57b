/** What `/metrics` says, as Prometheus text. No label names a session: their number is open. */
import type { IntervalHistogram } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import type { ServerContext } from '../doors/exchange.ts'
import { VERSION } from '../wire/version.ts'

export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** How long the database is waited for. */
const OWNED_MS_MAX = 1_000

type Metric = {
  readonly name: string
  readonly type: 'counter' | 'gauge'
  readonly help: string
  /** By its labels, written out; an empty text for none. */
  readonly values: Readonly<Record<string, number>>
}

/** The event loop's delay is measured since the last scrape. */
export async function renderMetrics(
  context: ServerContext,
  delay: IntervalHistogram,
): Promise<string> {
  const metrics = [
    ...counters(context),
    ...gauges(context),
    ...browserGauges(context),
    answers(context),
    ...lease(context),
    ...(await ownership(context)),
    ...forwards(context),
    loopDelay(delay),
    buildInfo(),
  ]
  delay.reset()
  return metrics.map(render).join('')
}

function counters({ holdfast }: ServerContext): readonly Metric[] {
  return Object.entries(holdfast.authority.counters).map(([name, value]) => ({
    name: `holdfast_${snakeCase(name)}_total`,
    type: 'counter',
    help: `${snakeCase(name).replaceAll('_', ' ')} since the start`,
    values: { '': Number(value) },
  }))
}

function gauges({ holdfast, sockets, isDraining }: ServerContext): readonly Metric[] {
  const { rss, heapUsed } = process.memoryUsage()
  return [
    gauge('holdfast_sessions_held', 'sessions held in memory', holdfast.authority.heldCount),
    gauge('holdfast_sockets', 'sockets that are open', sockets()),
    gauge('holdfast_draining', '1 while the server is about to stop', Number(isDraining())),
    gauge('process_resident_memory_bytes', 'resident memory', rss),
    gauge('nodejs_heap_size_used_bytes', 'JavaScript heap in use', heapUsed),
    gauge('process_uptime_seconds', 'how long the process has run', process.uptime()),
  ]
}

const BROWSER_GAUGES = {
  browsers: ['holdfast_browsers', 'browsers that run'],
  sessions: ['holdfast_browser_sessions', 'browser sessions that have a part of one'],
  clients: ['holdfast_browser_clients', 'clients of browsers, connected or waited for'],
  attached: ['holdfast_cdp_sessions', 'CDP sessions of clients with browsers and targets'],
  waiting: ['holdfast_cdp_commands_waiting', 'CDP commands that have no reply yet'],
  pages: ['holdfast_browser_pages', 'pages that are open'],
} as const

function browserGauges({ browsers }: ServerContext): readonly Metric[] {
  const counts = browsers?.()?.countsNow()
  if (counts === undefined) return []
  return Object.entries(BROWSER_GAUGES).map(([count, [name, help]]) =>
    gauge(name, help, counts[count] ?? 0),
  )
}

function gauge(name: string, help: string, value: number): Metric {
  return { name, type: 'gauge', help, values: { '': value } }
}

function answers({ answered }: ServerContext): Metric {
  const counts = Array.from(answered, ([status, count]) => [`{status="${status}"}`, count])
  const values = Object.fromEntries(counts) as Record<string, number>
  const help = 'HTTP answers begun, by status'
  return { name: 'holdfast_http_answers_total', type: 'counter', help, values }
}

/** Only where others may be: elsewhere a lease never ends, and all sessions are this node's. */
function lease({ holdfast }: ServerContext): readonly Metric[] {
  const { lease: held } = holdfast.authority
  if (held === null) return []
  return [
    gauge('holdfast_lease_age_seconds', 'since the lease was last renewed', held.ageMs / 1e3),
    gauge(
      'holdfast_lease_remaining_seconds',
      'until this node stops by itself if the lease is not renewed; 0: it has',
      held.leftMs / 1e3,
    ),
  ]
}

/** Left out if the database does not say so soon. */
async function ownership({ holdfast }: ServerContext): Promise<readonly Metric[]> {
  const { store, node } = holdfast.authority
  if (store.cluster === undefined) return []
  const late = new AbortController()
  // A missing gauge means that the database did not answer.
  const count = await Promise.race([
    store.cluster.owned(node).catch(() => null),
    setTimeout(OWNED_MS_MAX, null, { signal: late.signal }).catch(() => null),
  ])
  late.abort()
  const help = 'open sessions that this node owns, held in memory or not'
  return count === null ? [] : [gauge('holdfast_sessions_owned', help, count)]
}

function forwards({ forwards: counts }: ServerContext): readonly Metric[] {
  if (counts === undefined) return []
  const values = Object.fromEntries(
    Object.entries(counts).map(([name, count]) => [`{outcome="${snakeCase(name)}"}`, count]),
  )
  const help = 'requests and sockets that came to the wrong node, by what became of them'
  return [{ name: 'holdfast_forwards_total', type: 'counter', help, values }]
}

function loopDelay(delay: IntervalHistogram): Metric {
  const seconds = (nanoseconds: number): number =>
    Number.isFinite(nanoseconds) ? nanoseconds / 1e9 : 0
  return {
    name: 'holdfast_event_loop_delay_seconds',
    type: 'gauge',
    help: 'delay of the event loop since the last scrape',
    values: {
      '{quantile="0.5"}': seconds(delay.percentile(50)),
      '{quantile="0.99"}': seconds(delay.percentile(99)),
      '{quantile="1"}': seconds(delay.max),
    },
  }
}

function buildInfo(): Metric {
  const labels = `{version="${VERSION}",node="${process.version}"}`
  const help = 'which version this is'
  return { name: 'holdfast_build_info', type: 'gauge', help, values: { [labels]: 1 } }
}

function render({ name, type, help, values }: Metric): string {
  const samples = Object.entries(values).map(([labels, value]) => `${name}${labels} ${value}\n`)
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${samples.join('')}`
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
