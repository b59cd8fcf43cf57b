/** What `/metrics` says, as Prometheus text. No label names a session: their number is open. */
import type { IntervalHistogram } from 'node:perf_hooks'
import type { ServerContext } from '../doors/exchange.ts'
import { VERSION } from '../wire/version.ts'
import { within } from './limits.ts'

export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** How long the database is waited for. */
const OWNED_MS_MAX = 1_000

const BROWSER_GAUGES = {
  browsers: ['holdfast_browsers', 'browsers that run'],
  sessions: ['holdfast_browser_sessions', 'browser sessions that have a part of one'],
  clients: ['holdfast_browser_clients', 'clients of browsers, connected or waited for'],
  attached: ['holdfast_cdp_sessions', 'CDP sessions of clients with browsers and targets'],
  waiting: ['holdfast_cdp_commands_waiting', 'CDP commands that have no reply yet'],
  pages: ['holdfast_browser_pages', 'pages that are open'],
} as const

/** The event loop's delay is measured since the last scrape. */
export async function renderMetrics(
  { holdfast, sockets, isDraining, browsers, answered, forwards }: ServerContext,
  delay: IntervalHistogram,
): Promise<string> {
  // The lease and what is owned only where other nodes may be: elsewhere a lease never ends.
  const { counters, heldCount, lease, store, node } = holdfast.authority
  // A missing gauge means that the database did not answer in time.
  const owned = store.cluster?.owned(node).catch(() => null)
  const ownedCount = owned === undefined ? null : await within(OWNED_MS_MAX, owned)
  const { rss, heapUsed } = process.memoryUsage()
  const byStatus = labelled('status', answered)
  const leaseAge = lease && lease.ageMs / 1e3
  const browserCounts = browsers()?.countsNow()
  const seconds = (nanoseconds: number): number =>
    Number.isFinite(nanoseconds) ? nanoseconds / 1e9 : 0
  const metrics = [
    ...Object.entries(counters).map(([name, count]) => {
      const help = `${snakeCase(name).replaceAll('_', ' ')} since the start`
      return metric(`holdfast_${snakeCase(name)}_total`, help, Number(count))
    }),
    metric('holdfast_sessions_held', 'sessions held in memory', heldCount),
    metric('holdfast_sockets', 'sockets that are open', sockets()),
    metric('holdfast_draining', '1 while the server is about to stop', Number(isDraining())),
    metric('process_resident_memory_bytes', 'resident memory', rss),
    metric('nodejs_heap_size_used_bytes', 'JavaScript heap in use', heapUsed),
    metric('process_uptime_seconds', 'how long the process has run', process.uptime()),
    ...Object.entries(BROWSER_GAUGES).map(([count, [name, help]]) =>
      metric(name, help, browserCounts && (browserCounts[count] ?? 0)),
    ),
    metric('holdfast_http_answers_total', 'HTTP answers begun, by status', byStatus),
    metric('holdfast_lease_age_seconds', 'since the lease was last renewed', leaseAge),
    metric(
      'holdfast_lease_remaining_seconds',
      'until this node stops by itself if the lease is not renewed; 0: it has',
      lease && lease.leftMs / 1e3,
    ),
    metric(
      'holdfast_sessions_owned',
      'open sessions that this node owns, held in memory or not',
      ownedCount,
    ),
    metric(
      'holdfast_forwards_total',
      'requests and sockets that came to the wrong node, by what became of them',
      forwards && labelled('outcome', Object.entries(forwards)),
    ),
    metric('holdfast_event_loop_delay_seconds', 'delay of the event loop since the last scrape', {
      '{quantile="0.5"}': seconds(delay.percentile(50)),
      '{quantile="0.99"}': seconds(delay.percentile(99)),
      '{quantile="1"}': seconds(delay.max),
    }),
    metric('holdfast_build_info', 'which version this is', {
      [`{version="${VERSION}",node="${process.version}"}`]: 1,
    }),
  ]
  delay.reset()
  return metrics.join('')
}

/** A number, or several by their labels. Unknown: the metric is left out. */
type MetricValue = Readonly<Record<string, number>> | number | null | undefined

/** Written out; a counter's name ends with `_total`. */
function metric(name: string, help: string, value: MetricValue): string {
  if (value === null || value === undefined) return ''
  const type = name.endsWith('_total') ? 'counter' : 'gauge'
  const samples = Object.entries(typeof value === 'number' ? { '': value } : value)
  const lines = samples.map(([labels, sample]) => `${name}${labels} ${sample}\n`)
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

function labelled(
  label: string,
  counts: Iterable<readonly [string | number, number]>,
): MetricValue {
  return Object.fromEntries(
    Array.from(counts, ([name, count]) => [`{${label}="${snakeCase(String(name))}"}`, count]),
  )
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
