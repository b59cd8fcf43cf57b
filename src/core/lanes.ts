/**
 * A session's lane: the one FIFO in which its turns wait, whether they are in the log already
 * (`queued`) or still leave without a trace if their time is up (`waiting`). I3: first come, first
 * run. For readers both are one list.
 */
import type { Principal } from './principal.ts'
import { joinInputs, type Input, type RequestKey, type Turn } from './turns.ts'

/** What one caller asks for. */
type Request = {
  readonly input: Input
  /** How large it is, as JSON text. */
  readonly chars: number
  readonly keys: readonly RequestKey[]
  readonly by: Principal
}

/** One caller's request inside a waiting entry. */
export type Member = Request & {
  /** Given when the queue is first looked at: most are never seen waiting. */
  id: string | null
  /** When it began to wait, by event time; null for one that did not have to. */
  since: number | null
  /** Callers that share it by its idempotency key; it leaves with the last of them. */
  callers: number
  readonly admitted: Promise<string>
  readonly admit: (turn: string) => void
  readonly refuse: (error: unknown) => void
}

/** A turn of the log; `turn` is null until it is decided which. */
export type QueuedEntry = {
  readonly type: 'queued'
  readonly interrupts?: boolean
  /** Null for a turn whose event does not say it. */
  readonly by: Principal | null
  readonly chars: number
  turn: string | null
}

/** Requests that will be one turn: one, or several that were collected. */
export type WaitingEntry = {
  readonly type: 'waiting'
  readonly collect: boolean
  /** When it is next, what runs is told to stop. */
  readonly interrupts: boolean
  members: readonly Member[]
}

export type LaneEntry = QueuedEntry | WaitingEntry

/** A request that the log does not have yet; `entry` is null while it is being recorded. */
export type Pending = { readonly member: Member; readonly entry: WaitingEntry | null }

/** What waits for its turn, as readers see it. */
export type QueueRow = {
  /** 1 is next. Requests that were collected in one turn share a place. */
  readonly position: number
  /** When it began to wait; null in logs of 0.1.0. */
  readonly since: number | null
  readonly by: Principal | null
  readonly busy: 'queue' | 'interrupt' | 'collect'
} & (
  | { readonly turn: string; readonly state: 'queued' }
  /** Not admitted: it leaves no trace if its time is up, or if it is cancelled. */
  | { readonly request: string; readonly state: 'waiting' }
)

const REQUEST = 'r_'

/** Whether this is the id of a request that waits, and not of a turn. */
export function isRequestId(id: string): boolean {
  return id.startsWith(REQUEST)
}

export class Lane {
  #entries: LaneEntry[] = []
  /**
   * Requests by their keys until the log has them: those that wait, and those that have left the
   * entries above and are being recorded. A retry finds its request here (I11).
   */
  readonly #pending = new Map<string, Pending>()

  get length(): number {
    return this.#entries.length
  }

  /** How many requests wait: several may have been collected in one entry. */
  get requests(): number {
    return this.#entries.reduce(
      (sum, entry) => sum + (entry.type === 'waiting' ? entry.members.length : 1),
      0,
    )
  }

  /** How large they are together. */
  get chars(): number {
    return this.#entries.reduce((sum, entry) => sum + charsOf(entry), 0)
  }

  push(entry: LaneEntry): void {
    this.#entries.push(entry)
  }

  shift(): LaneEntry | undefined {
    return this.#entries.shift()
  }

  /** False if it was not there any more. */
  remove(entry: LaneEntry): boolean {
    const index = this.#entries.indexOf(entry)
    if (index >= 0) this.#entries.splice(index, 1)
    return index >= 0
  }

  removeTurn(turn: string): void {
    this.#entries = this.#entries.filter((entry) => entry.type !== 'queued' || entry.turn !== turn)
  }

  has(entry: LaneEntry): boolean {
    return this.#entries.includes(entry)
  }

  /** How many entries stand before this one. */
  position(entry: LaneEntry): number {
    return Math.max(0, this.#entries.indexOf(entry))
  }

  get first(): LaneEntry | null {
    return this.#entries[0] ?? null
  }

  /** The entry that stands directly before this one. */
  before(entry: LaneEntry): LaneEntry | null {
    return this.#entries[this.#entries.indexOf(entry) - 1] ?? null
  }

  /**
   * The entry that a `collect` request of this size may join: the last one, so that nobody is
   * overtaken, and only as long as all of it would do as one request.
   */
  joinable(chars: number, charsMax: number): WaitingEntry | null {
    const last = this.#entries.at(-1)
    if (last?.type !== 'waiting' || !last.collect) return null
    return charsOf(last) + chars <= charsMax ? last : null
  }

  /** The request with this key that the log does not have yet, if any. */
  pending(key: string): Pending | null {
    const found = this.#pending.get(key)
    if (found === undefined) return null
    const { member, entry } = found
    return { member, entry: entry !== null && this.has(entry) ? entry : null }
  }

  newMember({ input, keys, chars, by }: Request): Member {
    let resolve!: (turn: string) => void
    let reject!: (error: unknown) => void
    const admitted = new Promise<string>((...settle) => ([resolve, reject] = settle))
    const member: Member = {
      ...{ input, keys, chars, by, id: null, since: null, callers: 1, admitted },
      admit: (turn) => {
        this.forget(member)
        resolve(turn)
      },
      refuse: (error) => {
        this.forget(member)
        reject(error)
      },
    }
    return member
  }

  /** From now on it is found by its keys; `entry` null: it is being recorded. */
  track(member: Member, entry: WaitingEntry | null): void {
    for (const { key } of member.keys) this.#pending.set(key, { member, entry })
  }

  forget(member: Member): void {
    for (const { key } of member.keys) this.#pending.delete(key)
  }

  /**
   * Gives the place of a request that waits to its turn, which is being recorded; of one that was
   * collected behind others, the place behind them. The log keeps turns in the order in which they
   * are recorded, so the turn stands behind all that are recorded already.
   */
  replace({ member, entry }: { member: Member; entry: WaitingEntry }, turn: QueuedEntry): void {
    const place = this.#entries.indexOf(entry) + (entry.members[0] === member ? 0 : 1)
    const recorded = this.#entries.findLastIndex(({ type }) => type === 'queued')
    this.#entries.splice(Math.max(place, recorded + 1), 0, turn)
    this.withdraw(member, entry)
  }

  /** Takes a request out of its entry, and the entry along with the last one. */
  withdraw(member: Member, entry: WaitingEntry): void {
    entry.members = entry.members.filter((other) => other !== member)
    if (entry.members.length === 0) this.remove(entry)
  }

  /** All that waits, in order. `newId` names requests that nobody has seen before. */
  rows(queued: readonly Turn[], newId: () => string): readonly QueueRow[] {
    return this.#entries.flatMap((entry, index) => {
      const position = index + 1
      if (entry.type === 'waiting') {
        return entry.members.map((member) => waitingRow(entry, member, position, newId))
      }
      // One that is not in the log yet may still be refused: it has no name.
      const turn = queued.find(({ id }) => id === entry.turn)
      return turn === undefined ? [] : [queuedRow(turn, position, entry.interrupts === true)]
    })
  }

  /** Takes a waiting request out by its id; null if it does not wait (any more). */
  removeRequest(id: string): Member | null {
    for (const entry of this.#entries) {
      if (entry.type !== 'waiting') continue
      const found = entry.members.find((member) => member.id === id)
      if (found === undefined) continue
      this.withdraw(found, entry)
      return found
    }
    return null
  }

  /** Takes out the requests that wait outside the log; admitted turns keep their places. */
  clearWaiting(): readonly Member[] {
    const waiting = this.#entries.filter((entry) => entry.type === 'waiting')
    this.#entries = this.#entries.filter((entry) => entry.type === 'queued')
    return waiting.flatMap(({ members }) => members)
  }
}

function waitingRow(
  { collect, interrupts }: WaitingEntry,
  member: Member,
  position: number,
  newId: () => string,
): QueueRow {
  member.id ??= REQUEST + newId()
  const { id: request, since, by } = member
  const busy = collect ? 'collect' : interrupts ? 'interrupt' : 'queue'
  return { request, state: 'waiting', position, since, by, busy }
}

export function queuedRow(turn: Turn, position: number, interrupts = false): QueueRow {
  const { id, queuedAt, by, collect } = turn
  const busy = collect ? 'collect' : interrupts ? 'interrupt' : 'queue'
  return { turn: id, state: 'queued', position, since: queuedAt, by, busy }
}

function charsOf(entry: LaneEntry): number {
  if (entry.type === 'queued') return entry.chars
  return entry.members.reduce((sum, { chars }) => sum + chars, 0)
}

/** What the members of an entry ask for together. */
export function combine(members: readonly Member[]): {
  readonly input: Input
  readonly keys: readonly RequestKey[]
  readonly by: readonly Principal[]
  /** Since when the first of them waited. */
  readonly queuedAt: number | null
} {
  const since = members.flatMap((member) => (member.since === null ? [] : [member.since]))
  return {
    input: members.map(({ input }) => input).reduce(joinInputs),
    keys: members.flatMap(({ keys }) => keys),
    by: members.map(({ by }) => by),
    queuedAt: since.length === 0 ? null : Math.min(...since),
  }
}
