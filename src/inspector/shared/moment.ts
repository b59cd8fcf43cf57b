/** Times and durations as people read them. */
import { signal } from '@preact/signals'

const TIME = { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false } as const
const clock = new Intl.DateTimeFormat(undefined, TIME)
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
const date = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' })

export const clockTime = (at: number): string => clock.format(at)
export const fullTime = (at: number): string => day.format(at)
export const dateOf = (at: number): string => date.format(at)

/** The time now, once a second while the page can be seen. */
export const now = signal(Date.now())

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now()
  }, 1_000)
}

/** "just now", "3 min", "2 h", "5 d". */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 10) return 'just now'
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`
  return `${Math.floor(seconds / 86_400)} d`
}

/** "120 ms", "1.5 s", "24 s", "10 min". */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${Math.round(ms / 100) / 10} s`
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`
  return `${Math.round(ms / 86_400_000)} d`
}

/** "3 events", "1 event". */
export const plural = (count: number, noun: string): string =>
  `${count.toLocaleString()} ${noun}${count === 1 ? '' : 's'}`
