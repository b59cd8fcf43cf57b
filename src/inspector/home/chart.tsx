/** Small charts of the last hour, a minute each. Words beside them say the same. */
import type { ComponentChildren } from 'preact'
import { clockTime } from '../shared/moment.ts'

const WIDTH = 300
const HEIGHT = 56

/** Null: there was nothing in this minute. */
type Values = readonly (number | null)[]

export type Series = { readonly name: string; readonly tone: string; readonly values: Values }

type ChartProps = {
  readonly title: string
  /** The figure that counts, in large type. */
  readonly figure: string
  readonly note: string
  readonly kind: 'bars' | 'lines'
  readonly series: readonly Series[]
  readonly show: (value: number) => string
  /** When each minute began. */
  readonly times: readonly number[]
}

export function Chart({ title, figure, note, kind, series, show, times }: ChartProps) {
  const top = topOf(kind, series)
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        <span class="chart-figure">{figure}</span>
        <span class="chart-note muted">{note}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, the last hour: ${figure}, ${note}`}
      >
        <line class="chart-base" x1="0" y1={HEIGHT - 0.5} x2={WIDTH} y2={HEIGHT - 0.5} />
        {kind === 'bars' ? (
          <Bars series={series} top={top} />
        ) : (
          series.map(({ name, tone, values }) => (
            <path key={name} class="chart-line" data-tone={tone} d={lineOf(values, top)} />
          ))
        )}
        <Hints series={series} show={show} times={times} />
      </svg>
      <Legend series={series}>{top === 0 ? null : `up to ${show(top)}`}</Legend>
    </figure>
  )
}

/** The highest that is drawn. */
function topOf(kind: 'bars' | 'lines', series: readonly Series[]): number {
  const minutes = series[0]?.values.length ?? 0
  const heights = Array.from({ length: minutes }, (_, minute) => {
    const all = series.map(({ values }) => values[minute] ?? 0)
    return kind === 'bars' ? all.reduce((sum, value) => sum + value, 0) : Math.max(...all)
  })
  return Math.max(0, ...heights)
}

const xOf = (minute: number, minutes: number): number => (minute / minutes) * WIDTH
const heightOf = (value: number, top: number): number => (value / top) * (HEIGHT - 4)

/** One on the other, the first at the bottom. */
function Bars({ series, top }: { readonly series: readonly Series[]; readonly top: number }) {
  const minutes = series[0]?.values.length ?? 0
  const width = WIDTH / Math.max(1, minutes) - 1
  const below = Array.from({ length: minutes }, () => 0)
  return (
    <>
      {series.map(({ name, tone, values }) =>
        values.map((value, minute) => {
          if (value === null || value === 0) return null
          const height = heightOf(value, top)
          const base = below[minute] ?? 0
          below[minute] = base + height
          const y = HEIGHT - base - height
          const place = { x: xOf(minute, minutes), y, width, height }
          return <rect key={`${name} ${minute}`} class="chart-bar" data-tone={tone} {...place} />
        }),
      )}
    </>
  )
}

/** A line through the values that follow each other; a value alone is a short dash. */
function lineOf(values: Values, top: number): string {
  const step = WIDTH / Math.max(1, values.length)
  return values
    .map((value, minute) => {
      if (value === null || top === 0) return ''
      const [x, y] = [xOf(minute, values.length), HEIGHT - 2 - heightOf(value, top)]
      const isJoined = minute > 0 && values[minute - 1] !== null
      return `${isJoined ? 'L' : 'M'}${x} ${y}H${x + step}`
    })
    .join('')
}

/** What a minute was, on hovering. */
function Hints({ series, show, times }: Pick<ChartProps, 'series' | 'show' | 'times'>) {
  return (
    <>
      {times.map((at, minute) => {
        const words = series.map(({ name, values }) => {
          const value = values[minute] ?? null
          return `${name}: ${value === null ? 'none' : show(value)}`
        })
        const [x, width] = [xOf(minute, times.length), WIDTH / times.length]
        return (
          <rect key={at} class="chart-hint" x={x} y={0} width={width} height={HEIGHT}>
            <title>{[clockTime(at).slice(0, 5), ...words].join('\n')}</title>
          </rect>
        )
      })}
    </>
  )
}

function Legend({
  series,
  children,
}: {
  readonly series: readonly Series[]
  readonly children: ComponentChildren
}) {
  return (
    <p class="chart-legend muted">
      {series.map(({ name, tone }) => (
        <span key={name}>
          <span class="chart-mark" data-tone={tone} aria-hidden="true" />
          {name}
        </span>
      ))}
      <span class="spring" />
      <span>{children}</span>
    </p>
  )
}
