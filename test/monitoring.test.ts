/** The dashboard, the alerts and the documents name metrics that exist, with labels that they have. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { METRICS, type MetricName, type MetricRow } from '../src/server/metric-table.ts'

const read = (file: string): string => readFileSync(new URL(`../${file}`, import.meta.url), 'utf8')

/** The labels that Prometheus adds, and that of a histogram's buckets. */
const ADDED = ['job', 'instance', 'le']

/** A metric in a text, and what stands in braces behind it. */
const NAME = /\b((?:holdfast|process|nodejs)_[a-z_]+[a-z])(?:\{([^}]*)\})?/g
const PARTS = /_(bucket|sum|count)$/

function rowOf(name: string): MetricRow | undefined {
  const known = METRICS[name as MetricName]
  if (known !== undefined) return known
  const whole = METRICS[name.replace(PARTS, '') as MetricName]
  return whole?.type === 'histogram' ? whole : undefined
}

/** What is wrong in a query: unknown metrics, and labels that none of its metrics has. */
function problemsIn(query: string): readonly string[] {
  const found = [...query.matchAll(NAME)]
  const labels = new Set(found.flatMap(([, name = '']) => rowOf(name)?.labels ?? []))
  const selected = found.flatMap(([, , braces = '']) => braces.match(/\w+(?=\s*[=!])/g) ?? [])
  const grouped = [...query.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) =>
    names.split(/, */),
  )
  const unknown = [...selected, ...grouped].filter(
    (one) => !labels.has(one) && !ADDED.includes(one),
  )
  return [
    ...found.filter(([, name = '']) => rowOf(name) === undefined).map(([, name]) => String(name)),
    ...unknown.map((label) => `${label} in ${query}`),
  ]
}

const dashboard = (): readonly string[] =>
  JSON.parse(read('deploy/grafana-dashboard.json')).panels.flatMap(({ targets = [] }: any) =>
    targets.map(({ expr }: { expr: string }) => expr),
  )

const alerts = (): readonly string[] =>
  read('deploy/prometheus-alerts.yml')
    .split(/- alert: /)
    .slice(1)
    .map((rule) => /expr:([^]*?)\n {8}(?:for|labels):/.exec(rule)?.[1] ?? '')

describe('a query', () => {
  it.each([dashboard, alerts])('names metrics and labels that exist (%o)', (queries) => {
    expect(queries().length).toBeGreaterThan(10)
    expect(queries().flatMap(problemsIn)).toEqual([])
  })

  it.each([
    ['rate(holdfast_turns_lost_total[5m])', 'holdfast_turns_lost_total'],
    ['holdfast_asks_bucket', 'holdfast_asks_bucket'],
    ['sum by (principal) (holdfast_turns)', 'principal in'],
    ['holdfast_turns{status="running"}', 'status in'],
  ])('is found if it does not: %s', (query, problem) => {
    expect(problemsIn(query)).toEqual([expect.stringContaining(problem)])
  })
})

describe('a document', () => {
  const pages = ['guide', 'reference'].flatMap((folder) =>
    readdirSync(new URL(`../docs/${folder}`, import.meta.url)).map(
      (page) => `docs/${folder}/${page}`,
    ),
  )

  it.each([...pages, 'README.md'])('names metrics that exist (%s)', (page) => {
    const named = [...read(page).matchAll(/`(holdfast_[a-z_]+[a-z])\b/g)].map(
      ([, name = '']) => name,
    )
    const unknown = named.filter((name) => {
      const isPart = Object.keys(METRICS).some((known) => known.startsWith(`${name}_`))
      return rowOf(name) === undefined && !isPart
    })
    expect(unknown).toEqual([])
  })

  it('has a row for each metric, and no other', () => {
    const rows = [...read('docs/reference/metrics.md').matchAll(/^\| `(\w+)`/gm)].map(
      ([, name]) => name,
    )
    expect(rows.toSorted()).toEqual(Object.keys(METRICS).toSorted())
  })
})
