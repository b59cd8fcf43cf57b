/**
 * A history in the form in which it is judged: logs parsed and folded, operations with their ends.
 */
import type { SessionEvent } from '../../src/core/events.ts'
import { createSession, evolve } from '../../src/core/session.ts'
import type { Session } from '../../src/core/state.ts'
import type { Outcome } from './clients.ts'
import type { Happening, History, Operation, Recorded } from './history.ts'

export type Log = {
  readonly id: string
  readonly events: readonly SessionEvent[]
  /** The state after each event; the first is the state after seq 1. */
  readonly states: readonly Session[]
  readonly last: Session | null
}

/** One thing that a client wanted, from beginning to end. */
export type Done<Kind extends Operation['kind'] = Operation['kind']> = {
  readonly op: number
  readonly operation: Operation & { readonly kind: Kind }
  readonly begun: Recorded
  readonly ended: Recorded | null
  readonly outcome: Outcome | null
  readonly tries: readonly Recorded<Happening & { type: 'op.tried' }>[]
  /** The codes of tries that failed. */
  readonly codes: readonly string[]
}

export type RunFacts = {
  readonly begun: Recorded<Happening & { type: 'run.begun' }>
  /** When its agent was done, or had been told to stop. */
  overAt: number
  /** Deltas that it had said before each message, so that what follows is a new stretch. */
  readonly boundaries: number[]
}

export type Facts = {
  readonly history: History
  readonly logs: ReadonlyMap<string, Log>
  readonly operations: readonly Done[]
  readonly runs: readonly RunFacts[]
}

export function gather(history: History): Facts {
  const logs = new Map<string, Log>()
  for (const [id, { events }] of history.logs) {
    logs.set(
      id,
      foldLog(
        id,
        events.map(({ body }) => JSON.parse(body) as SessionEvent),
      ),
    )
  }
  return { history, logs, operations: gatherOperations(history), runs: gatherRuns(history) }
}

export function foldLog(id: string, events: readonly SessionEvent[]): Log {
  const states: Session[] = []
  for (const event of events) {
    const before = states.at(-1)
    if (before !== undefined) states.push(evolve(before, event))
    else if (event.type === 'session.created') states.push(createSession(event))
  }
  return { id, events, states, last: states.at(-1) ?? null }
}

function gatherOperations(history: History): Done[] {
  const operations = new Map<number, Done & { outcome: Outcome | null; ended: Recorded | null }>()
  const tries = new Map<number, Recorded<Happening & { type: 'op.tried' }>[]>()
  const codes = new Map<number, string[]>()
  for (const happening of history.happenings) {
    switch (happening.type) {
      case 'op.begun': {
        const { op } = happening
        const tried: Recorded<Happening & { type: 'op.tried' }>[] = []
        const failed: string[] = []
        tries.set(op, tried)
        codes.set(op, failed)
        const done = { op, operation: happening, begun: happening, ended: null, outcome: null }
        operations.set(op, { ...done, tries: tried, codes: failed })
        break
      }
      case 'op.tried':
        tries.get(happening.op)?.push(happening)
        break
      case 'op.failed':
        codes.get(happening.op)?.push(happening.code)
        break
      case 'op.ended': {
        const done = operations.get(happening.op)
        if (done !== undefined)
          Object.assign(done, { ended: happening, outcome: happening.outcome })
        break
      }
      default:
    }
  }
  return [...operations.values()]
}

function gatherRuns(history: History): RunFacts[] {
  const runs = new Map<number, RunFacts>()
  const end = (run: number, stamp: number): void => {
    const facts = runs.get(run)
    if (facts !== undefined) facts.overAt = Math.min(facts.overAt, stamp)
  }
  for (const happening of history.happenings) {
    switch (happening.type) {
      case 'run.begun':
        runs.set(happening.run, { begun: happening, overAt: Infinity, boundaries: [] })
        break
      case 'run.told':
      case 'run.ended':
        end(happening.run, happening.stamp)
        break
      case 'run.message':
        runs.get(happening.run)?.boundaries.push(happening.deltas)
        break
      case 'node.crashed':
        for (const { begun } of runs.values()) {
          if (begun.node === happening.node) end(begun.run, happening.stamp)
        }
        break
      default:
    }
  }
  return [...runs.values()]
}

/** What was wanted of one kind. */
export function wanted<Kind extends Operation['kind']>(
  { operations }: Facts,
  ...kinds: readonly Kind[]
): readonly Done<Kind>[] {
  return operations.filter((done): done is Done<Kind> =>
    (kinds as readonly string[]).includes(done.operation.kind),
  )
}

/** Where each session's life begins, and where its end was known to whoever ended it. */
export type Life = {
  readonly session: string
  readonly key: string | null
  readonly internal: boolean
  readonly from: number
  /** When the closing append was applied. */
  closedAt: number
  /** When its answer reached the node that made it. */
  knownAt: number
}

export function lives(history: History): Map<string, Life> {
  const found = new Map<string, Life>()
  const closing = new Map<number, Life[]>()
  for (const happening of history.happenings) {
    if (happening.type === 'store.created') {
      const { session, key, internal, stamp } = happening
      const open = { closedAt: Infinity, knownAt: Infinity }
      found.set(session, { session, key, internal, from: stamp, ...open })
    } else if (happening.type === 'store.appended' && happening.closed) {
      const life = found.get(happening.session)
      if (life === undefined) continue
      life.closedAt = happening.stamp
      closing.set(happening.call, [...(closing.get(happening.call) ?? []), life])
    } else if (happening.type === 'store.replied') {
      for (const life of closing.get(happening.call) ?? []) life.knownAt = happening.stamp
    }
  }
  return found
}

/** The items by what `nameOf` says of them, in order. */
export function grouped<Item, Name>(
  items: readonly Item[],
  nameOf: (item: Item) => Name,
): ReadonlyMap<Name, readonly Item[]> {
  const groups = new Map<Name, Item[]>()
  for (const item of items) {
    const name = nameOf(item)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, [item])
    else group.push(item)
  }
  return groups
}
