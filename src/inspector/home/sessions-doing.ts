/** The sessions that are doing something, kept up to date by the change feed. */
import { useEffect, useState } from 'preact/hooks'
import type { SessionRowView } from '../../wire/views.ts'
import { followChanges } from '../shared/feeds.ts'
import { api } from '../shared/server.ts'

export type SessionsDoing = {
  readonly rows: readonly SessionRowView[]
  /** How many there are: `12`, or `10,000+`. */
  readonly count: string
}

/** At most once in this time, however many change. */
const READ_MS = 1_000

/** Null: not read yet. Those that changed last are the first; `shown` of each status are read. */
export function useSessionsDoing(statuses: readonly string[], shown: number): SessionsDoing | null {
  const [found, setFound] = useState<SessionsDoing | null>(null)
  const names = statuses.join(' ')
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    let isOver = false
    let isReading = false
    let isStale = false
    const read = async (): Promise<void> => {
      isReading = true
      isStale = false
      const next = await sessionsDoing(names.split(' '), shown).catch(onlyTold)
      isReading = false
      if (isOver) return
      if (next !== null) setFound(next)
      if (isStale) later()
    }
    const later = (): void => {
      isStale = true
      if (isReading || timer !== undefined) return
      timer = setTimeout(() => {
        timer = undefined
        void read()
      }, READ_MS)
    }
    const stop = followChanges({ changed: later, restarted: later })
    void read()
    return () => {
      isOver = true
      clearTimeout(timer)
      stop()
    }
  }, [names, shown])
  return found
}

/** The frame says that the server cannot be reached, and the feed begins anew after that. */
const onlyTold = (_error: unknown): null => null

async function sessionsDoing(statuses: readonly string[], shown: number): Promise<SessionsDoing> {
  const pages = await Promise.all(
    statuses.map((status) =>
      api.sessions({ status, sort: 'activity', count: 'true', limit: String(shown) }),
    ),
  )
  const rows = pages.flatMap(({ sessions }) => sessions)
  const counts = pages.map(({ count }) => count ?? { atLeast: 0, isExact: true })
  const atLeast = counts.reduce((sum, count) => sum + count.atLeast, 0)
  const isExact = counts.every((count) => count.isExact)
  return {
    rows: rows.sort((one, other) => other.updatedAt - one.updatedAt).slice(0, shown),
    count: `${atLeast.toLocaleString()}${isExact ? '' : '+'}`,
  }
}
