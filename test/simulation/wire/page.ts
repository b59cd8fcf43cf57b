/** A page: one client session, all that its handlers are told, and what a person does with it. */
import type { Client } from '../../../src/client/client.ts'
import type { ClientSession } from '../../../src/client/session.ts'
import type { ReconnectPolicy } from '../../../src/core/index.ts'
import { codeOf } from '../clients.ts'
import type { Place } from '../history.ts'
import type { Process } from '../process.ts'
import type { WireHappening, WishOutcome } from './happenings.ts'
import type { TabOptions } from './tab.ts'

/** What a tab's pages have in common. */
export type PageKind = {
  readonly key: string
  readonly reconnect: ReconnectPolicy
  readonly exclusive: boolean
  readonly graceMs: number
  readonly role: 'driver' | 'watcher'
  readonly kinds: readonly string[]
  readonly presence: boolean
  readonly history: 'replay' | 'continue'
  readonly remembers: boolean
}

type Wish = Omit<WireHappening & { type: 'wish.begun' }, 'type' | 'page' | 'wish'>

const BEGINNING: Place = { seq: 0, delta: 0 }
const NOTHING = { turn: null, state: null, reply: null, iterated: null }

export class Page {
  readonly name: string
  readonly process: Process
  readonly #kind: PageKind
  readonly #options: TabOptions
  readonly #session: ClientSession
  readonly #turns: string[] = []
  /** Wishes that have not come to an end. */
  pending = 0
  #hasLeft = false

  constructor(
    tab: string,
    name: string,
    kind: PageKind,
    process: Process,
    client: Client,
    before: { readonly place: string | null; readonly page: string | null },
    options: TabOptions,
  ) {
    this.name = name
    this.process = process
    this.#kind = kind
    this.#options = options
    const { key, role, kinds, presence } = kind
    const goesOn = kind.history === 'continue' && before.place !== null
    const from = goesOn ? (JSON.parse(before.place) as { seen: Place }).seen : BEGINNING
    const continues = goesOn ? before.page : null
    this.#record({
      ...{ type: 'page.begun', page: name, tab, key, role, kinds, presence },
      ...{ from, continues },
    })
    const { reconnect, exclusive, graceMs, history } = kind
    const creation = { reconnect, exclusive, graceMs, history }
    this.#session = client.session({ key, role, answers: kinds, presence, ...creation })
    this.#listen()
    this.#watchReady()
  }

  get state(): string {
    return this.#session.state.name
  }

  /** How far it has come. */
  get seen(): Place {
    return this.#session.seen
  }

  get sessionId(): string {
    return this.#session.info?.id ?? ''
  }

  get isVisible(): boolean {
    return this.#kind.presence
  }

  #listen(): void {
    const session = this.#session
    const { name: page } = this
    session.on('event', (event) => {
      const turn = 'turn' in event ? event.turn : null
      const facts = { seq: event.seq, delta: 0, what: event.type, turn }
      this.#record({ type: 'page.told', page, ...facts, json: JSON.stringify(event) })
    })
    session.on('delta', ({ turn, n, text }) => {
      const facts = { seq: session.seen.seq, delta: n, what: 'delta', turn }
      this.#record({ type: 'page.told', page, ...facts, json: text })
    })
    session.on('ask', ({ id, question }) => {
      this.#record({ type: 'page.ask', page, ask: id })
      this.#answerLater(id, question)
    })
    session.on('asks', (asks) => {
      const ids = asks.map(({ id }) => id)
      this.#record({ type: 'page.asks', page, seq: session.seen.seq, asks: ids })
    })
    session.on('state', (state) => {
      const code = state.name === 'ended' ? state.code : null
      const asks = session.asks.map(({ id }) => id)
      const { id = null, seq = 0 } = session.info ?? {}
      const facts = { state: state.name, code, session: id, seq, asks }
      this.#record({ type: 'page.state', page, ...facts })
      if (state.name === 'ended') this.#lookLater()
    })
  }

  /** Pending like everything else: it settles with the welcome, or with the end. */
  #watchReady(): void {
    this.pending += 1
    const settled = (): void => void (this.pending -= 1)
    this.#session.ready.then(settled, settled)
  }

  /** A moment after the end nothing may be left. */
  #lookLater(): void {
    const { network } = this.#options
    this.process.after(1, () => {
      if (this.#session.state.name !== 'ended') return
      const left = { timers: this.process.timers, sockets: network.socketsOf(this.name) }
      this.#record({ type: 'page.over', page: this.name, ...left, wishes: this.pending })
    })
  }

  turn(): void {
    const { random, nextWish } = this.#options
    const wish = nextWish()
    const text = `w${wish}.`
    const busy = random.weighted({ queue: 6, collect: 1, interrupt: 2, reject: 1 })
    const onDisconnect = random.pick(['continue', 'cancel', null] as const)
    const iterates = random.chance(0.5)
    const waitMs = random.pick([300, 5_000, null])
    const begun: Wish = { kind: 'turn', text, ask: null, onDisconnect }
    void this.#wish(wish, begun, async () => {
      const options = {
        ...{ busy, waitMs: waitMs ?? undefined, onDisconnect: onDisconnect ?? undefined },
      }
      const turn = this.#session.turn(text, options)
      void turn.started.then((id) => this.#turns.push(id)).catch(() => undefined)
      let iterated: string | null = null
      if (iterates) {
        iterated = ''
        for await (const part of turn) iterated += part
      }
      const { id, state, reply } = await turn
      return { turn: id, state, reply: reply?.text ?? null, iterated }
    })
  }

  cancel(): void {
    const turn = this.#turns.at(-1)
    if (turn === undefined) return
    const begun: Wish = { kind: 'cancel', text: turn, ask: null, onDisconnect: null }
    void this.#wish(this.#options.nextWish(), begun, async () => {
      await this.#session.cancel(turn)
      return NOTHING
    })
  }

  close(): void {
    const begun: Wish = { kind: 'close', text: '', ask: null, onDisconnect: null }
    void this.#wish(this.#options.nextWish(), begun, async () => {
      await this.#session.close()
      return NOTHING
    })
  }

  takeOver(): void {
    const { state } = this.#session
    if (state.name !== 'ended' || state.hint !== 'take_over' || this.#hasLeft) return
    const begun: Wish = { kind: 'takeOver', text: '', ask: null, onDisconnect: null }
    void this.#wish(this.#options.nextWish(), begun, async () => {
      await this.#session.takeOver()
      return NOTHING
    })
  }

  #answerLater(ask: string, question: string): void {
    const { random } = this.#options
    if (random.chance(0.2)) return
    this.process.after(random.between(0, random.pick([800, 4_000])), () => {
      const wish = this.#options.nextWish()
      const answer = `${question} w${wish}.`
      const begun: Wish = { kind: 'answer', text: answer, ask, onDisconnect: null }
      void this.#wish(wish, begun, async () => {
        await this.#session.answer(ask, answer)
        return NOTHING
      })
    })
  }

  async #wish(
    wish: number,
    begun: Wish,
    work: () => Promise<Omit<WishOutcome & { ok: true }, 'ok'>>,
  ): Promise<void> {
    this.pending += 1
    this.#record({ type: 'wish.begun', wish, page: this.name, ...begun })
    const outcome = await work().then(
      (done): WishOutcome => ({ ok: true, ...done }),
      (error: unknown): WishOutcome => ({ ok: false, code: codeOf(error) }),
    )
    this.pending -= 1
    this.#record({ type: 'wish.ended', wish, outcome })
  }

  /** Says goodbye. What is heard after this is heard too late. */
  leave(): void {
    if (this.#hasLeft) return
    this.#hasLeft = true
    if (this.#options.random.chance(0.5)) this.#session.leave()
    else this.#session.dispose()
    this.#record({ type: 'page.left', page: this.name })
    this.#lookLater()
  }

  die(): void {
    this.#record({ type: 'page.died', page: this.name })
    this.process.crash()
  }

  /** The dead tell nothing. */
  #record(happening: WireHappening): void {
    if (this.process.state !== 'dead') this.#options.history.record(happening)
  }
}
