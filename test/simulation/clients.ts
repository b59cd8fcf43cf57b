/**
 * The clients of a world: they want things, at any node, and try again as clients do: elsewhere if
 * the session is another node's, later if nobody answers.
 */
import {
  LOCAL,
  type BusyPolicy,
  type Holdfast,
  type Principal,
  type ReconnectPolicy,
  type TurnOptions,
} from '../../src/core/index.ts'
import { Follower } from './follower.ts'
import type { History, Operation } from './history.ts'
import { Holder } from './holder.ts'
import { InboxFollower } from './inbox-follower.ts'
import type { Modules } from './modules.ts'
import type { Node } from './node.ts'
import type { Random } from './random.ts'
import type { Timeline } from './timeline.ts'

/** What came of an operation. */
export type Outcome =
  | {
      readonly ok: true
      readonly session?: string
      readonly isNew?: boolean
      readonly turn?: string
      readonly state?: string
      readonly reply?: string | null
      /** What came of iterating the turn; null if that was cut short. */
      readonly iterated?: string | null
      readonly attachment?: string
      readonly listed?: readonly string[]
    }
  /** `position`: in the queue, if a busy session has told it. */
  | { readonly ok: false; readonly code: string; readonly position?: number }

/** What came of one that succeeded. */
export type Facts = Omit<Outcome & { ok: true }, 'ok'>

const KEYS = ['alice', 'bob', 'carol'] as const
const EXPLICIT_IDS = ['own-1', 'own-2'] as const
const PRINCIPALS: readonly Principal[] = [LOCAL, { kind: 'token', issuer: 'world', id: 'other' }]
const TRIES = 8

/**
 * Codes after which the same request may be made again, because it carries a key or changes
 * nothing.
 */
const TRANSIENT = new Set([
  'connection_lost',
  'draining',
  'internal',
  'lease_lost',
  'stale_epoch',
  'store_unavailable',
  'thrown',
])

export type Wishes = Readonly<Record<keyof typeof WISHES, number>>

/** What is wanted how often. */
export const WISHES = {
  turnByKey: 20,
  turn: 16,
  submit: 14,
  resolve: 12,
  resolveTogether: 5,
  burst: 12,
  cancel: 6,
  move: 5,
  attach: 10,
  follow: 8,
  inbox: 5,
  close: 5,
  erase: 1,
  view: 2,
  list: 5,
} as const

/** Everybody talks at once. */
export const CROWDED: Wishes = {
  ...WISHES,
  turnByKey: 10,
  turn: 6,
  submit: 6,
  resolve: 2,
  resolveTogether: 2,
  burst: 50,
  attach: 2,
  close: 1,
  erase: 0,
}

export type ClientsOptions = {
  readonly modules: Modules
  readonly timeline: Timeline
  readonly random: Random
  readonly history: History
  readonly wishes: Wishes
  readonly nodes: () => readonly Node[]
  /** Sessions in which a turn runs. */
  readonly busySessions: () => readonly string[]
}

type Policy = {
  readonly reconnect: ReconnectPolicy
  readonly ttlMs: number | null
  readonly exclusive: boolean
}

export class Clients {
  readonly #options: ClientsOptions
  readonly #policies = new Map<string, Policy>()
  readonly #sessions: string[] = []
  readonly #turns: { session: string; turn: string }[] = []
  readonly #holders: Holder[] = []
  readonly #followers: Follower[] = []
  #inboxes = 0
  #operations = 0
  #nonces = 0
  /** Operations that have not come to an end. */
  pending = 0
  /** No new wishes: the world comes to rest. */
  resting = false

  constructor(options: ClientsOptions) {
    this.#options = options
    const { random } = options
    for (const name of [...KEYS, ...EXPLICIT_IDS]) {
      const reconnect = random.weighted({ reopen: 4, resume: 2, early: 1, none: 1 })
      const ttlMs = random.chance(0.3) ? random.between(5_000, 30_000) : null
      this.#policies.set(name, { reconnect, ttlMs, exclusive: random.chance(0.15) })
    }
  }

  get followersPending(): readonly Follower[] {
    return this.#followers.filter((follower) => !follower.over)
  }

  /** Somebody wants something. */
  wish(): void {
    const { random } = this.#options
    const session = this.#sessions.length === 0 ? null : this.#likelySession()
    const wish = random.weighted(this.#options.wishes)
    if (wish === 'turnByKey' || session === null) return void this.#turn(null, random.pick(KEYS))
    switch (wish) {
      case 'turn':
        return void this.#turn(session, null)
      case 'submit':
        return void this.#turn(session, null, 'submit')
      case 'resolve':
        return void this.#resolve(random.pick(['key', 'explicit', 'both', 'internal']))
      case 'resolveTogether':
        return this.#resolveTogether()
      case 'burst':
        return this.#burst(session)
      case 'cancel':
        return void this.#cancel()
      case 'move':
        return void this.#move(random.pick([session, ...this.#options.busySessions()]))
      case 'attach':
        return void this.#attach(session)
      case 'follow':
        return this.#follow(session)
      case 'inbox':
        return void this.#followAsks()
      default:
        return void this.#simple(wish, session)
    }
  }

  /** Mostly one of the newest, so that sessions are shared and open. */
  #likelySession(): string {
    const { random } = this.#options
    return random.pick(random.chance(0.8) ? this.#sessions.slice(-4) : this.#sessions)
  }

  #resolveTogether(): void {
    const { random } = this.#options
    const key = random.pick(KEYS)
    const kind = random.chance(0.8) ? 'key' : 'explicit'
    for (let count = random.between(2, 4); count > 0; count -= 1) void this.#resolve(kind, key)
  }

  /** Many at one session, at once or shortly after each other. */
  #burst(session: string): void {
    const { random, timeline, busySessions } = this.#options
    const busySession = busySessions().at(-1) ?? session
    const target = random.chance(0.7) ? busySession : session
    const spacingMs = random.pick([0, 30, 30])
    const collects = random.chance(0.6)
    const waiting = random.pick([0.5, 0.9])
    for (let count = random.between(2, 6); count > 0; count -= 1) {
      const kind = random.chance(waiting) ? 'turn' : 'submit'
      const busy = random.chance(0.5) ? 'collect' : 'queue'
      const wait = (): void => void this.#turn(target, null, kind, collects ? busy : null)
      timeline.after(count * spacingMs, wait)
    }
  }

  async #resolve(
    kind: 'key' | 'explicit' | 'both' | 'internal',
    wanted: string = this.#options.random.pick(KEYS),
  ): Promise<void> {
    const internal = kind === 'internal'
    const key = kind === 'key' || kind === 'both' ? wanted : null
    const id = kind === 'explicit' || kind === 'both' ? this.#explicitId() : null
    const options = {
      ...this.#policies.get(id ?? key ?? ''),
      ...(key === null ? {} : { key }),
      ...(id === null ? {} : { id }),
      internal,
    }
    await this.perform({ kind: 'resolve', key, id, internal }, true, async (holdfast) => {
      const { id: session, isNew } = await holdfast.resolve(options)
      return { session, isNew }
    })
  }

  /** Old ones are closed some day: then there are new ones too. */
  #explicitId(): string {
    const { random, timeline } = this.#options
    return `${random.pick(EXPLICIT_IDS)}.${Math.floor(timeline.now / 20_000)}`
  }

  async #turn(
    session: string | null,
    key: string | null,
    kind: 'turn' | 'submit' = 'turn',
    only: BusyPolicy | null = null,
  ): Promise<void> {
    const { random } = this.#options
    this.#nonces += 1
    const nonce = `n${this.#nonces}.`
    const idempotencyKey = random.chance(only === null ? 0.5 : 0.2) ? `i${this.#nonces}` : null
    const any = random.weighted({ queue: 6, collect: 3, interrupt: 2, reject: 1, steer: 2 })
    const busy = only ?? any
    const waitMs = random.weighted({ none: 4, short: only === null ? 2 : 0, long: 2 })
    const leaves = kind === 'turn' && random.chance(0.15)
    const iterates = kind === 'turn' && random.chance(0.3)
    const turnOptions: TurnOptions = {
      busy,
      ...(waitMs === 'none' ? {} : { waitMs: waitMs === 'short' ? random.between(0, 300) : 5_000 }),
      ...(idempotencyKey === null ? {} : { idempotencyKey }),
    }
    const operation = { kind, session, key, nonce, busy, idempotencyKey, iterates, leaves } as const
    const work = this.#turnWork(operation, turnOptions)
    const first = this.perform(operation, idempotencyKey !== null, work)
    if (idempotencyKey !== null && random.chance(0.4)) this.#repeat(operation, turnOptions)
    await first
  }

  /** The same key again, with the same body or, by mistake, with another. */
  #repeat(operation: Operation & { kind: 'turn' | 'submit' }, options: TurnOptions): void {
    const { random, timeline } = this.#options
    const isSame = random.chance(0.6)
    const other = operation.kind === 'submit' ? 'turn' : 'submit'
    const kind = random.chance(0.3) ? other : operation.kind
    const nonce = isSame ? operation.nonce : operation.nonce.replace('.', 'x.')
    const again = { ...operation, kind, nonce, leaves: false } as const
    timeline.after(random.chance(0.5) ? 0 : random.between(1, 6_000), () => {
      void this.perform(again, true, this.#turnWork(again, options))
    })
  }

  #turnWork(
    { kind, session, key, nonce, iterates, leaves }: Operation & { kind: 'turn' | 'submit' },
    options: TurnOptions,
  ): (holdfast: Holdfast, node: Node) => Promise<Facts> {
    const by = this.#options.random.pick(PRINCIPALS)
    if (kind === 'submit') {
      return async (holdfast) => {
        const id = session ?? ''
        const { id: turn } = await holdfast.session(id).as(by).submit(nonce, options)
        return { session: id, turn }
      }
    }
    return async (holdfast, node) => {
      const presence = leaves ? this.#leaveLater(node) : {}
      const all = { ...options, ...presence }
      const handle =
        session === null
          ? holdfast.turn({ key: key ?? '', ...this.#policies.get(key ?? '') }, nonce, all)
          : holdfast.session(session).turn(nonce, all)
      const { live, turn } = await handle.admission
      this.#turns.push({ session: live.id, turn })
      const iterated = iterates ? await together(handle) : null
      const { state, reply } = await handle
      return { session: live.id, turn, state, reply: reply?.text ?? null, iterated }
    }
  }

  #leaveLater(node: Node): TurnOptions {
    const { random, timeline } = this.#options
    const controller = new AbortController()
    timeline.after(random.between(0, 3_000), () =>
      node.process.deliver('message', () => controller.abort()),
    )
    return {
      signal: controller.signal,
      onDisconnect: random.chance(0.5) ? 'continue' : 'cancel',
    }
  }

  async #cancel(): Promise<void> {
    const { random, busySessions } = this.#options
    const busy = busySessions()
    if (busy.length > 0 && random.chance(0.5)) return this.#cancelWaiting(random.pick(busy))
    const known = this.#turns.slice(-5)
    if (known.length === 0) return
    const { session, turn } = this.#options.random.pick(known)
    await this.perform({ kind: 'cancel', session, turn }, true, async (holdfast) => {
      const { state } = await holdfast.session(session).cancelTurn(turn)
      return { session, turn, state }
    })
  }

  /** Takes back a request that waits, if there is one. */
  async #cancelWaiting(session: string): Promise<void> {
    await this.perform({ kind: 'view', session }, true, async (holdfast) => {
      const handle = holdfast.session(session)
      const { queue } = await handle.overview()
      const row = queue.find(({ state }) => state === 'waiting')
      if (row?.state === 'waiting') await handle.cancelRequest(row.request)
      return { session }
    })
  }

  /** One of the principals moves one of its turns, if it has several that wait. */
  async #move(session: string): Promise<void> {
    const { random } = this.#options
    const by = random.pick(PRINCIPALS)
    await this.perform({ kind: 'move', session }, false, async (holdfast) => {
      const handle = holdfast.session(session).as(by)
      const { queue } = await handle.overview()
      const own = queue.flatMap((row) =>
        row.state === 'queued' && row.by?.id === by.id && row.busy !== 'collect' ? [row.turn] : [],
      )
      if (own.length > 1) await handle.moveTurn(random.pick(own), random.pick([...own, null]))
      return { session }
    })
  }

  async #simple(kind: 'close' | 'erase' | 'view' | 'list', session: string): Promise<void> {
    const operation: Operation = kind === 'list' ? { kind } : { kind, session }
    await this.perform(operation, true, async (holdfast) => {
      const handle = holdfast.session(session)
      if (kind === 'close') await handle.close()
      else if (kind === 'erase') await handle.erase()
      else if (kind === 'view') await handle.state()
      else return { listed: (await holdfast.list({ limit: 3 })).sessions.map(({ id }) => id) }
      return { session }
    })
  }

  async #attach(session: string): Promise<void> {
    const holder = new Holder(this.#options, this, session)
    this.#holders.push(holder)
    await holder.hold()
  }

  /** Called by a runner that asks: one client answers, or two, or nobody does. */
  asked(session: string, ask: string): void {
    const { random, timeline } = this.#options
    for (let count = random.between(0, 2); count > 0; count -= 1) {
      const answer = `${ask} yes ${count}`
      timeline.after(random.between(10, 2_500), () => void this.#answer(session, ask, answer))
    }
  }

  async #answer(session: string, ask: string, answer: string): Promise<void> {
    const holder = this.#holders.findLast((known) => known.session === session)
    const by = this.#options.random.chance(0.5) ? holder : undefined
    await this.perform({ kind: 'answer', session, ask, answer }, false, async (holdfast) => {
      const handle = holdfast.session(session)
      const open = (await handle.asks()).find(({ question }) => question === ask)
      if (open === undefined) throw Object.assign(new Error('it is gone'), { code: 'ask_gone' })
      const isHeld = await by?.answer(holdfast, open.id, answer)
      if (isHeld !== true) await handle.answer(open.id, answer)
      return { session }
    })
  }

  #follow(session: string): void {
    const follower = new Follower(this.#options, this, this.#followers.length + 1, session)
    this.#followers.push(follower)
    void follower.follow()
  }

  async #followAsks(): Promise<void> {
    this.#inboxes += 1
    this.pending += 1
    await new InboxFollower(this.#options, this, this.#inboxes).follow()
    this.pending -= 1
  }

  /** Tries until it succeeds, is refused for good, or is given up. */
  async perform(
    operation: Operation,
    retries: boolean,
    work: (holdfast: Holdfast, node: Node) => Promise<Facts>,
    only: Node | null = null,
  ): Promise<Outcome> {
    const { history } = this.#options
    if (this.resting) return { ok: false, code: 'resting' }
    this.#operations += 1
    const op = this.#operations
    this.pending += 1
    history.record({ type: 'op.begun', op, ...operation })
    const outcome = await this.#try(op, retries, work, only)
    history.record({ type: 'op.ended', op, outcome })
    this.pending -= 1
    if (outcome.ok) this.#learn(outcome)
    return outcome
  }

  #learn({ session, turn }: Outcome & { ok: true }): void {
    if (session !== undefined && !this.#sessions.includes(session)) this.#sessions.push(session)
    if (session !== undefined && turn !== undefined) this.#turns.push({ session, turn })
  }

  async #try(
    op: number,
    retries: boolean,
    work: (holdfast: Holdfast, node: Node) => Promise<Facts>,
    only: Node | null,
  ): Promise<Outcome> {
    const { history } = this.#options
    let node = only ?? (await this.anyNode())
    for (let attempt = 1; ; attempt += 1) {
      if (node === null) return { ok: false, code: 'resting' }
      try {
        const at = node
        const facts = await at.request((holdfast) => {
          history.record({ type: 'op.tried', op, node: at.name })
          return work(holdfast, at)
        })
        return { ok: true, ...facts }
      } catch (error) {
        const code = codeOf(error)
        history.record({ type: 'op.failed', op, node: node.name, code })
        const again = code === 'not_owner' || (retries && TRANSIENT.has(code))
        if (!again || only !== null || attempt === TRIES) {
          return { ok: false, code, ...positionOf(error) }
        }
        node = await this.nodeAfter(error)
      }
    }
  }

  /**
   * Where to try again: with the owner if the error names one that is there, or later, anywhere.
   */
  async nodeAfter(error: unknown): Promise<Node | null> {
    const { random, timeline, nodes } = this.#options
    const owner = (error as { details?: { node?: unknown } }).details?.node
    const found = nodes().find(({ name, reachable }) => name === owner && reachable)
    if (found !== undefined && random.chance(0.8)) return found
    await timeline.sleep(random.between(100, 3_000))
    return this.anyNode()
  }

  /** A node that can be reached, sooner or later; null when the world has come to rest. */
  async anyNode(): Promise<Node | null> {
    const { random, timeline, nodes } = this.#options
    for (;;) {
      const reachable = nodes().filter((node) => node.reachable)
      if (reachable.length > 0) return random.pick(reachable)
      if (this.resting) return null
      await timeline.sleep(500)
    }
  }
}

export function codeOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : 'thrown'
}

async function together(parts: AsyncIterable<string>): Promise<string | null> {
  let text = ''
  try {
    for await (const part of parts) text += part
  } catch {
    return null
  }
  return text
}

function positionOf(error: unknown): { readonly position?: number } {
  const { details } = error as { readonly details?: { readonly position?: number } }
  return details?.position === undefined ? {} : { position: details.position }
}
