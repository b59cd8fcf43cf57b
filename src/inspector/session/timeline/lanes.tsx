/** The bars of a timeline, in lanes below each other. Each is a link, or zooms in on several. */
import { useRef } from 'preact/hooks'
import { go } from '../../shared/router.ts'
import { drawnBars, type Bar, type BarRow, type DrawnBar, type TimeRange } from './bars.ts'

type LanesProps = {
  readonly rows: readonly BarRow[]
  readonly range: TimeRange
  readonly width: number
  /** The end of bars that are not over. */
  readonly end: number
  readonly show: (range: TimeRange) => void
  /** The mouse or the focus is on this bar. */
  readonly point: (bar: Bar) => void
}

export function Lanes(props: LanesProps) {
  const { rows, range, width, end } = props
  return (
    <>
      {rows.map(({ name, lanes }) => (
        <section key={name} class="timeline-row" data-row={name.toLowerCase()}>
          <h3>{name}</h3>
          {lanes.map((lane, index) => (
            <Lane
              key={index}
              name={lanes.length === 1 ? name : `${name} ${index + 1}`}
              bars={drawnBars(lane, range, { width, end })}
              {...props}
            />
          ))}
        </section>
      ))}
    </>
  )
}

type LaneProps = LanesProps & { readonly name: string; readonly bars: readonly DrawnBar[] }

/** One stop of the Tab key; the arrow keys with Shift go from bar to bar. */
function Lane({ name, bars, show, point }: LaneProps) {
  const list = useRef<HTMLUListElement>(null)
  const step = (event: KeyboardEvent): void => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (way === undefined || !event.shiftKey) return
    event.preventDefault()
    event.stopPropagation()
    const links = [...(list.current?.querySelectorAll('a') ?? [])]
    const at = links.findIndex((link) => link === document.activeElement)
    links[at + way]?.focus()
  }
  return (
    <ul class="timeline-lane" aria-label={name} ref={list} onKeyDown={step}>
      {bars.map(({ bar, count, x, width }, index) => (
        <li key={bar.key}>
          <a
            class="bar"
            href={bar.href}
            aria-label={bar.label}
            title={bar.label}
            data-kind={bar.kind}
            data-count={count > 1 ? String(count) : undefined}
            tabIndex={index === 0 ? 0 : -1}
            style={{ left: `${x}px`, width: `${width}px` }}
            onFocus={() => point(bar)}
            onPointerEnter={() => point(bar)}
            onClick={(event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey) return
              event.preventDefault()
              if (count === 1) go(bar.href)
              else show(aroundOf(bar))
            }}
          />
        </li>
      ))}
    </ul>
  )
}

function aroundOf({ from, to }: Bar): TimeRange {
  const margin = Math.max(10, ((to ?? from) - from) * 0.1)
  return { from: from - margin, to: (to ?? from) + margin }
}
