/** One session as its views show it: what is known of it, its log, and what a person does there. */
import { batch, computed, signal } from '@preact/signals'
import type { ClientState, Delta, Input, SessionEvent } from '../../client/index.ts'
import type { SessionView } from '../../wire/views.ts'
import type { OpenAsk } from '../asks/ask-card.tsx'
import { api } from '../shared/server.ts'
import { SessionConnection, type Scope, type SessionAccess } from './connection.ts'
import { LogHistory } from './log-history.ts'
import type { LogWindow } from './log-window.ts'
import { Outbox } from './outbox.ts'

export type QueueEntry = SessionView['queued'][number]

/** How many events are handled at once, so that the page answers its reader in between. */
const BATCH_ITEMS = 1_000
const FLUSH_MS = 40

export class SessionModel {
  readonly access: SessionAccess
  readonly history: LogHistory
  readonly outbox: Outbox
  readonly info = signal<SessionView | null>(null)
  readonly state = signal<ClientState>({ name: 'connecting' })
  /** When the connection was lost; null: it is not. */
  readonly lostAt = signal<number | null>(null)
  readonly isWatcher = signal(true)
  readonly scopes = signal<ReadonlySet<Scope>>(new Set())
  readonly running = signal<string | null>(null)
  /** The turn that a person stops. */
  readonly stopping = signal<string | null>(null)
  readonly asks = signal<readonly OpenAsk[]>([])
  readonly queue = signal<readonly QueueEntry[]>([])
  /** The answer of the running turn since its last message. */
  readonly live = signal<{ readonly turn: string; readonly text: string } | null>(null)
  /** What did not work, in a sentence. */
  readonly problem = signal('')
  readonly isOpen = computed(() => this.state.value.name !== 'ended')
  /** Clients drive it over CDP: it has pages, and no conversation. */
  readonly isBrowser = computed(() => {
    const { key = null, labels = {} } = this.info.value ?? {}
    return key?.startsWith('cdp:') === true || (labels['door'] === 'cdp' && 'browser' in labels)
  })
  readonly #connection: SessionConnection
  /** What came since the last time that the page was drawn. */
  #received: (SessionEvent | Delta)[] = []
  #timer: ReturnType<typeof setTimeout> | null = null
  #hasLeft = false

  constructor(access: SessionAccess) {
    this.access = access
    this.outbox = new Outbox(access.id)
    this.history = new LogHistory(access.id, access.link !== null, ({ message }) => {
      this.problem.value = message
    })
    this.#connection = new SessionConnection(access, {
      changed: (state) => queueMicrotask(() => this.#changed(state)),
      learned: (info) => {
        this.info.value = { ...this.info.peek(), ...info }
      },
      restarted: () => this.#restarted(),
      event: (event) => this.#receive(event),
      delta: (delta) => this.#receive(delta),
    })
    void this.#open()
  }

  get id(): string {
    return this.access.id
  }

  /** The end of the log. */
  get log(): LogWindow {
    return this.history.latest.value
  }

  may(scope: Scope): boolean {
    return this.scopes.value.has(scope)
  }

  takePart(): void {
    this.#connection.takePart()
  }

  takeOver(): void {
    this.#connection.takeOver()
  }

  /** Attaches as a watcher: a driver leaves, and asks do not wait for this page any more. */
  watch(): void {
    this.#flush()
    this.#connection.watch(this.#end)
  }

  leave(): void {
    this.#hasLeft = true
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#connection.leave()
  }

  /** Sends what is in the box. A refusal puts it back. */
  send(text: string, busy: 'queue' | 'steer' | 'interrupt' | 'collect' | 'reject'): void {
    const turn = this.#connection.takePart()?.turn(text, { busy })
    if (turn === undefined) return
    this.problem.value = ''
    const message = this.outbox.add(text)
    turn.started.then(
      () => this.outbox.sent(message),
      (error: Error) => {
        this.outbox.refused(message)
        this.problem.value = `Not sent: ${error.message}. The text is back in the box.`
      },
    )
  }

  /** Sends an input of before again, with its images and files, which the session has. */
  retry(input: Input): void {
    this.problem.value = ''
    this.#connection
      .takePart()
      ?.turn(input)
      .started.catch((error: Error) => {
        this.problem.value = `Not sent: ${error.message}`
      })
  }

  stop(): void {
    const turn = this.running.peek()
    if (turn === null) return
    this.stopping.value = turn
    this.#connection
      .takePart()
      ?.cancel(turn)
      .catch((error: Error) => {
        this.stopping.value = null
        this.problem.value = `Not stopped: ${error.message}`
      })
  }

  async answer(ask: string, answer: unknown): Promise<void> {
    await this.#connection.takePart()?.answer(ask, answer)
  }

  /** What waits outside of the log, and what else events do not tell. A guest may not read it. */
  async refresh(): Promise<void> {
    if (this.access.link !== null) return
    try {
      const info = await api.session(this.id)
      batch(() => {
        this.info.value = info
        this.queue.value = info.queued
      })
    } catch {
      // The connection shows that the server cannot be reached, or that the session is gone.
      this.queue.value = []
    }
  }

  /** Reads the end of the log first: what came before is read when a reader goes there. */
  async #open(): Promise<void> {
    if (this.access.link === null) {
      try {
        const [info, asks] = await Promise.all([
          api.session(this.id),
          api.openAsks(this.id),
          this.history.readEnd(),
        ])
        batch(() => {
          this.info.value = info
          this.queue.value = info.queued
          this.running.value = info.running
          this.asks.value = asks
        })
      } catch {
        // The connection says why: there is no such session, or no server. It reads all the rest.
      }
    }
    this.history.isReading.value = false
    if (!this.#hasLeft) this.#connection.watch(this.#end)
  }

  get #end(): number {
    return this.history.latest.peek().end
  }

  #restarted(): void {
    this.#received = []
    batch(() => {
      this.history.restart()
      this.live.value = null
      this.asks.value = []
      this.running.value = null
    })
  }

  #changed(state: ClientState): void {
    batch(() => {
      this.state.value = state
      const isLost = state.name === 'reconnecting'
      this.lostAt.value = isLost ? (this.lostAt.peek() ?? Date.now()) : null
      this.isWatcher.value = this.#connection.isWatcher
      const all = ['talk', 'answer', 'edit', 'manage'] as const
      this.scopes.value = new Set(all.filter((scope) => this.#connection.may(scope)))
      if (state.name === 'ended') this.asks.value = []
    })
    if (state.name === 'live') this.#schedule()
    if (state.name === 'ended' && this.info.peek() !== null) void this.refresh()
  }

  #receive(item: SessionEvent | Delta): void {
    this.#received.push(item)
    this.#schedule()
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      this.#flush()
    }, FLUSH_MS)
  }

  #flush(): void {
    const items = this.#received.splice(0, BATCH_ITEMS)
    const events = items.filter((item) => item.type !== 'delta')
    batch(() => {
      if (events.length > 0) this.history.append(events)
      for (const item of items) {
        if (item.type === 'delta') this.#say(item)
        else this.#fold(item)
      }
    })
    if (this.#received.length > 0) this.#schedule()
    else if (this.state.peek().name === 'live')
      this.outbox.found(this.history.latest.peek().events.peek())
  }

  #say({ turn, text }: Delta): void {
    const live = this.live.peek()
    this.live.value = { turn, text: live?.turn === turn ? live.text + text : text }
  }

  #fold(event: SessionEvent): void {
    switch (event.type) {
      case 'turn.started':
        this.running.value = event.turn
        this.live.value = null
        return
      case 'message.added':
        this.live.value = null
        return
      case 'ask.opened': {
        const others = this.asks.peek().filter(({ id }) => id !== event.ask)
        this.asks.value = [...others, { ...event, id: event.ask }]
        return
      }
      case 'ask.settled':
        this.asks.value = this.asks.peek().filter(({ id }) => id !== event.ask)
        return
      case 'turn.done':
      case 'turn.failed':
      case 'turn.cancelled':
      case 'turn.interrupted':
        if (this.running.peek() === event.turn) this.running.value = null
        if (this.stopping.peek() === event.turn) this.stopping.value = null
        if (this.live.peek()?.turn === event.turn) this.live.value = null
        return
      default:
    }
  }
}
