/** The part of the time that a timeline shows: zoomed, moved, and marked by round times. */
import { clockTime, dateOf } from '../../shared/moment.ts'
import type { TimeRange } from './bars.ts'

const NARROWEST_MS = 20
const WIDEST_MS = 20 * 365 * 86_400_000

/** `factor` below 1 shows less; `at` is a time that stays where it is. */
export function zoomed({ from, to }: TimeRange, factor: number, at = (from + to) / 2): TimeRange {
  const width = Math.min(WIDEST_MS, Math.max(NARROWEST_MS, (to - from) * factor))
  const part = (at - from) / (to - from)
  return { from: at - part * width, to: at + (1 - part) * width }
}

/** `part` of the range to the right. */
export function moved({ from, to }: TimeRange, part: number): TimeRange {
  const step = (to - from) * part
  return { from: from + step, to: to + step }
}

/** A range of the address; null: it has none. */
export function givenRange(query: Readonly<Record<string, string>>): TimeRange | null {
  const [from, to] = [Number(query['from'] ?? Number.NaN), Number(query['to'] ?? Number.NaN)]
  const isRange = Number.isFinite(from) && Number.isFinite(to) && to - from >= NARROWEST_MS
  return isRange && to - from <= WIDEST_MS ? { from, to } : null
}

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const STEPS_MS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 7, 14, 30, 60, 90, 180, 365, 730].map((count) => count * DAY),
]

export type Tick = { readonly at: number; readonly text: string }

/** Round times, with room for their texts between them. */
export function ticksOf({ from, to }: TimeRange, countMax: number): readonly Tick[] {
  const step = STEPS_MS.find((ms) => (to - from) / ms <= countMax) ?? STEPS_MS.at(-1) ?? DAY
  // Round in the time of the reader's place.
  const offset = new Date(from).getTimezoneOffset() * MINUTE
  const ticks: Tick[] = []
  const first = Math.ceil((from - offset) / step) * step + offset
  for (let at = first; at <= to && ticks.length <= countMax; at += step) {
    ticks.push({ at, text: textOf(at, step) })
  }
  return ticks
}

function textOf(at: number, step: number): string {
  if (step >= DAY) return dateOf(at)
  if (step >= MINUTE) return clockTime(at).slice(0, -3)
  if (step >= SECOND) return clockTime(at)
  return `${clockTime(at)}.${String(Math.floor(at) % 1_000).padStart(3, '0')}`
}
