/** The nodes that share the store, for callers who may know them. */
import { may } from '../shared/me.ts'
import { usePolled } from '../shared/polled.ts'
import { api } from '../shared/server.ts'

export type NodeRow = {
  readonly id: string
  readonly url: string | null
  readonly isSelf: boolean
  readonly isAlive: boolean
  /** Null: it never ends. */
  readonly leaseUntil: number | null
  readonly sessions: number | null
  readonly forwards: number | null
  readonly failovers: number | null
  readonly startedAt: number
  readonly version: string
}

const NODES_MS = 5_000

/** Null: they are not known, or not for this caller. */
export function useNodes(): readonly NodeRow[] | null {
  const isAdmin = may('admin') === true
  const read = async (): Promise<readonly NodeRow[]> =>
    (await api.json<{ nodes: readonly NodeRow[] }>('/v1/nodes')).nodes
  return usePolled(read, NODES_MS, isAdmin ? 'nodes' : null).value
}
