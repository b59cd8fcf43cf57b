/** What happened in a world, in order. The checker judges this and nothing else. */
import type { Outcome } from './clients.ts'
import type { HeldHappening, WireHappening } from './wire/happenings.ts'

export type Happening =
  | WireHappening
  | HeldHappening
  | { readonly type: 'node.up'; readonly node: string }
  | { readonly type: 'node.started'; readonly node: string }
  | { readonly type: 'node.crashed'; readonly node: string }
  | { readonly type: 'node.frozen'; readonly node: string }
  | { readonly type: 'node.thawed'; readonly node: string }
  | { readonly type: 'node.parted'; readonly node: string }
  | { readonly type: 'node.rejoined'; readonly node: string }
  | { readonly type: 'node.stopping'; readonly node: string }
  /** Everything has been done that there is to do; what does the node still have in hand? */
  | {
      readonly type: 'node.quiet'
      readonly node: string
      readonly timers: number
      readonly held: number
    }
  | {
      readonly type: 'node.stopped'
      readonly node: string
      readonly timers: number
      readonly held: number
    }
  | { readonly type: 'wall.jumped'; readonly node: string; readonly ms: number }
  | { readonly type: 'world.healed' }
  | { readonly type: 'world.stuck'; readonly why: string }
  | { readonly type: 'world.quiet' }
  | { readonly type: 'unhandled'; readonly message: string }
  | {
      readonly type: 'store.created'
      readonly call: number
      readonly node: string
      readonly session: string
      readonly key: string | null
      readonly internal: boolean
      readonly epoch: number
    }
  | {
      readonly type: 'store.claimed'
      readonly call: number
      readonly node: string
      readonly session: string
      readonly epoch: number
      readonly lastEpoch: number
    }
  | {
      readonly type: 'store.appended'
      readonly call: number
      readonly node: string
      readonly session: string
      readonly epoch: number
      readonly after: number
      readonly count: number
      readonly closed: boolean
      /** What the store should have had: its latest epoch and the end of its log. */
      readonly latest: { readonly epoch: number; readonly seq: number; readonly closed: boolean }
    }
  | { readonly type: 'store.erased'; readonly session: string }
  /** A node's lease, as the store has it: it ends then, or has ended. */
  | { readonly type: 'store.leased'; readonly node: string; readonly untilMs: number }
  /** The store forgot a node's lease, and the node does not know. */
  | { readonly type: 'store.forgot'; readonly node: string }
  | {
      readonly type: 'store.sent'
      readonly call: number
      readonly node: string
      readonly what: string
      readonly session: string
    }
  | {
      readonly type: 'store.replied'
      readonly call: number
      readonly node: string
      readonly failed: boolean
    }
  | ({ readonly type: 'op.begun'; readonly op: number } & Operation)
  /** It has reached the node. */
  | { readonly type: 'op.tried'; readonly op: number; readonly node: string }
  | {
      readonly type: 'op.failed'
      readonly op: number
      readonly node: string
      readonly code: string
    }
  | { readonly type: 'op.ended'; readonly op: number; readonly outcome: Outcome }
  | {
      readonly type: 'run.begun'
      readonly run: number
      readonly node: string
      readonly session: string
      readonly turn: string
      readonly text: string
      readonly mode: string
    }
  | { readonly type: 'run.told'; readonly run: number }
  | { readonly type: 'run.ended'; readonly run: number }
  | { readonly type: 'run.message'; readonly run: number; readonly deltas: number }
  /** The agent has taken a further message. */
  | { readonly type: 'run.steered'; readonly session: string; readonly text: string }
  | { readonly type: 'run.bound'; readonly run: number; readonly backend: string }
  | {
      readonly type: 'ask.begun'
      readonly ask: string
      readonly node: string
      readonly session: string
      readonly turn: string
    }
  | { readonly type: 'ask.ended'; readonly ask: string; readonly outcome: string }
  | {
      readonly type: 'follow.begun'
      readonly follower: number
      readonly session: string
      readonly from: Place
    }
  | {
      readonly type: 'follow.on'
      readonly follower: number
      readonly node: string
      readonly from: Place
    }
  | {
      readonly type: 'follow.item'
      readonly follower: number
      readonly seq: number
      readonly delta: number
      readonly what: string
      readonly turn: string | null
    }
  | { readonly type: 'follow.cut'; readonly follower: number; readonly code: string }
  | { readonly type: 'follow.ended'; readonly follower: number; readonly how: 'over' | 'left' }
  /** A follower of all asks, which answers these kinds. */
  | {
      readonly type: 'inbox.begun'
      readonly inbox: number
      readonly node: string
      readonly answers: readonly string[]
    }
  /** It has been told of all that wait. */
  | { readonly type: 'inbox.listed'; readonly inbox: number }
  | {
      readonly type: 'inbox.saw'
      readonly inbox: number
      readonly what: 'ask.opened' | 'ask.settled'
      readonly session: string
      readonly ask: string
    }
  | { readonly type: 'inbox.left'; readonly inbox: number }
  | { readonly type: 'inbox.cut'; readonly inbox: number; readonly code: string }

export type Place = { readonly seq: number; readonly delta: number }

/** What a client wants. */
export type Operation =
  | {
      readonly kind: 'resolve'
      readonly key: string | null
      readonly id: string | null
      readonly internal: boolean
    }
  | {
      readonly kind: 'turn' | 'submit'
      readonly session: string | null
      readonly key: string | null
      readonly nonce: string
      readonly busy: string
      readonly idempotencyKey: string | null
      readonly iterates: boolean
      readonly leaves: boolean
    }
  | { readonly kind: 'cancel'; readonly session: string; readonly turn: string }
  | { readonly kind: 'move'; readonly session: string }
  | { readonly kind: 'attach' | 'close' | 'view' | 'erase'; readonly session: string }
  | {
      readonly kind: 'lose' | 'resume' | 'leave'
      readonly session: string
      readonly attachment: string
    }
  | {
      readonly kind: 'answer'
      readonly session: string
      readonly ask: string
      readonly answer: string
    }
  | { readonly kind: 'list' }

export type Recorded<What extends Happening = Happening> = What & {
  /** Its place in the history. */
  readonly stamp: number
  /** Virtual time, in milliseconds. */
  readonly at: number
}

export type StoredLog = {
  readonly events: { readonly seq: number; readonly body: string }[]
  readonly snapshots: { readonly seq: number; readonly body: string }[]
}

export class History {
  readonly seed: number
  /** The wall clocks of this world jump, so what waits by them may wait for hours. */
  readonly wallJumps: boolean
  readonly happenings: Recorded[] = []
  /** What the store accepted, by session, kept apart from the store. */
  readonly logs = new Map<string, StoredLog>()
  readonly #now: () => number

  constructor(seed: number, wallJumps: boolean, now: () => number) {
    this.seed = seed
    this.wallJumps = wallJumps
    this.#now = now
  }

  record(happening: Happening): number {
    const stamp = this.happenings.length + 1
    this.happenings.push({ stamp, at: this.#now(), ...happening })
    return stamp
  }

  /** Nodes may believe in leases that nobody else does: then only the fence is left. */
  get forgetsLeases(): boolean {
    return this.happenings.some(({ type }) => type === 'store.forgot')
  }

  of<Type extends Happening['type']>(type: Type): Recorded<Happening & { type: Type }>[] {
    return this.happenings.filter(
      (happening): happening is Recorded<Happening & { type: Type }> => happening.type === type,
    )
  }
}

/** The history as a person reads it, one line each. */
export function* readable(history: History): Generator<string> {
  for (const { stamp, at, type, ...rest } of history.happenings) {
    const facts = Object.entries(rest).map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    yield `${String(stamp).padStart(5)} ${String(Math.round(at)).padStart(7)} ms  ${type}  ${facts.join(' ')}`
  }
  for (const [session, { events }] of history.logs) {
    for (const { body } of events) yield `log of ${session}: ${body}`
  }
}
