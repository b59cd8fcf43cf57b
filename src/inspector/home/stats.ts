/** What a node has measured: the minutes of the last hour, and now. */
import { api } from '../shared/server.ts'

type Percentiles = Readonly<Record<'p50' | 'p95' | 'p99', number | null>>

export type Minute = {
  readonly at: number
  readonly turns: Readonly<
    Record<'started' | 'done' | 'failed' | 'cancelled' | 'interrupted', number>
  >
  readonly refused: number
  readonly asks: { readonly opened: number; readonly settled: number }
  readonly errors: number
  readonly wait: Percentiles
  readonly duration: Percentiles
}

export type Stats = {
  readonly node: string
  readonly since: number
  readonly minutes: readonly Minute[]
  readonly now: Readonly<
    Record<
      | 'running'
      | 'queued'
      | 'waiting'
      | 'asks'
      | 'sessionsHeld'
      | 'attachments'
      | 'watchers'
      | 'sockets'
      | 'eventLoopDelayMs'
      | 'rssBytes',
      number
    >
  >
}

/** Of the node that answers, unless it is named. */
export const readStats = (node: string): Promise<Stats> =>
  api.json(`/v1/stats${node === '' ? '' : `?node=${encodeURIComponent(node)}`}`)
