/** Times and durations as people read them. */

const TIME = { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false } as const
const clock = new Intl.DateTimeFormat(undefined, TIME)
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

export const clockTime = (at: number): string => clock.format(at)
export const fullTime = (at: number): string => day.format(at)

/** "just now", "3 min", "2 h", "5 d". */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 10) return 'just now'
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`
  return `${Math.floor(seconds / 86_400)} d`
}

/** "1.5 s", "24 s", "10 min". */
export function duration(ms: number): string {
  if (ms < 10_000) return `${Math.round(ms / 100) / 10} s`
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`
  return `${Math.round(ms / 86_400_000)} d`
}
