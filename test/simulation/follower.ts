/**
 * A client that follows a session from some place on, reconnects where it was cut off, and may be
 * slow.
 */
import { codeOf, type Clients, type ClientsOptions } from './clients.ts'
import type { Place } from './history.ts'
import type { Node } from './node.ts'

export class Follower {
  readonly session: string
  over = false
  readonly #options: ClientsOptions
  readonly #clients: Clients
  readonly #number: number
  readonly #isSlow: boolean
  readonly #isBrief: boolean
  #place: Place

  constructor(options: ClientsOptions, clients: Clients, number: number, session: string) {
    const { random, history } = options
    this.session = session
    this.#options = options
    this.#clients = clients
    this.#number = number
    this.#isSlow = random.chance(0.4)
    this.#isBrief = random.chance(0.6)
    const known = history.logs.get(session)?.events.length ?? 0
    this.#place = { seq: random.chance(0.5) ? 0 : random.between(0, known), delta: 0 }
  }

  /** How far it has come. */
  get place(): Place {
    return this.#place
  }

  async follow(): Promise<void> {
    const { history, random, timeline } = this.#options
    const follower = this.#number
    history.record({ type: 'follow.begun', follower, session: this.session, from: this.#place })
    let node = await this.#clients.anyNode()
    for (;;) {
      if (node === null) return this.#end('left')
      try {
        const at = node
        history.record({ type: 'follow.on', follower, node: at.name, from: this.#place })
        if (await at.request(() => this.#read(at))) return this.#end('over')
        if (this.#isBrief && random.chance(0.5)) return this.#end('left')
        await timeline.sleep(random.between(0, 2_000))
      } catch (error) {
        const code = codeOf(error)
        history.record({ type: 'follow.cut', follower, code })
        if (this.#clients.resting || code === 'session_erased') return this.#end('left')
        node = await this.#clients.nodeAfter(error)
      }
    }
  }

  #end(how: 'over' | 'left'): void {
    this.over = true
    this.#options.history.record({ type: 'follow.ended', follower: this.#number, how })
  }

  /** True when the session has ended, false when the connection was given up. */
  async #read(node: Node): Promise<boolean> {
    const { history, random, timeline } = this.#options
    const controller = new AbortController()
    const { signal } = controller
    if (this.#isBrief) {
      timeline.after(random.between(0, 10_000), () =>
        node.process.deliver('message', () => controller.abort()),
      )
    }
    const { seq: after, delta: afterDelta } = this.#place
    const feed = node.holdfast.session(this.session).feed({ after, afterDelta, signal })
    for await (const items of feed) {
      if (node.process.state === 'dead') return false
      for (const { seq, delta, event } of items) {
        const turn = 'turn' in event ? event.turn : null
        // Deltas are counted within a turn: events that come between them do not count.
        const counted = event.type === 'turn.started' ? 0 : this.#place.delta
        this.#place = { seq, delta: delta > 0 ? delta : counted }
        const facts = { follower: this.#number, seq, delta, what: event.type, turn }
        history.record({ type: 'follow.item', ...facts })
      }
      if (this.#isSlow) await node.process.sleep(random.between(0, 1_500))
      if (signal.aborted) return false
    }
    return !signal.aborted
  }
}
