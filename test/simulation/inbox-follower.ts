/** A client that follows the asks of all sessions at one node, and answers some kinds, or none. */
import { codeOf, type Clients, type ClientsOptions } from './clients.ts'
import type { Node } from './node.ts'

const ANSWERS = [[], ['permission'], ['permission', 'choice']] as const

export class InboxFollower {
  readonly #options: ClientsOptions
  readonly #clients: Clients
  readonly #number: number

  constructor(options: ClientsOptions, clients: Clients, number: number) {
    this.#options = options
    this.#clients = clients
    this.#number = number
  }

  /** Until it leaves, or its node is gone. */
  async follow(): Promise<void> {
    const node = await this.#clients.anyNode()
    if (node === null) return
    const { history } = this.#options
    try {
      await node.request(() => this.#read(node))
    } catch (error) {
      history.record({ type: 'inbox.cut', inbox: this.#number, code: codeOf(error) })
    }
  }

  async #read(node: Node): Promise<void> {
    const { history, random, timeline } = this.#options
    const inbox = this.#number
    const answers = random.pick(ANSWERS)
    const controller = new AbortController()
    timeline.after(random.between(0, 10_000), () =>
      node.process.deliver('message', () => controller.abort()),
    )
    history.record({ type: 'inbox.begun', inbox, node: node.name, answers })
    const { signal } = controller
    try {
      for await (const { events, open } of node.holdfast.asks({ answers, signal })) {
        if (node.process.state === 'dead') return
        if (open !== undefined) history.record({ type: 'inbox.listed', inbox })
        for (const { type, ask, row } of events) {
          const id = typeof ask === 'string' ? ask : ask.id
          history.record({ type: 'inbox.saw', inbox, what: type, session: row.id, ask: id })
        }
      }
    } finally {
      if (node.process.state !== 'dead') history.record({ type: 'inbox.left', inbox })
    }
  }
}
