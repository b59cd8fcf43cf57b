/**
 * A client that holds a session: it attaches, loses its connection or says goodbye, and may come
 * back.
 */
import type { AttachmentHandle, Holdfast } from '../../src/core/index.ts'
import type { Clients, ClientsOptions, Facts, Outcome } from './clients.ts'
import type { Node } from './node.ts'

export class Holder {
  readonly session: string
  readonly #options: ClientsOptions
  readonly #clients: Clients
  readonly #isResumable: boolean
  /** Its attachment and the last connection of it that it knows of. */
  #known: { readonly id: string; readonly epoch: number; readonly token: string | null } | null =
    null
  /** The node that has its connection. */
  #at: Node | null = null

  constructor(options: ClientsOptions, clients: Clients, session: string) {
    this.session = session
    this.#options = options
    this.#clients = clients
    this.#isResumable = options.random.chance(0.5)
  }

  async hold(): Promise<void> {
    const { random, timeline } = this.#options
    await this.#attach()
    if (this.#at === null) return
    await timeline.sleep(random.between(0, 8_000))
    if (random.chance(0.3)) return void this.#leave()
    // Only the node that had the connection notices that it is gone, if the node is still there.
    const losing = this.#lose()
    if (random.chance(0.5)) return
    await losing
    await timeline.sleep(random.between(0, 4_000))
    const resumed = await this.#resume()
    await timeline.sleep(random.between(0, 4_000))
    if (resumed.ok) await (random.chance(0.5) ? this.#lose() : this.#leave())
  }

  /** Answers as the holder of its attachment; false if it has none. */
  async answer(holdfast: Holdfast, ask: string, answer: string): Promise<boolean> {
    const handle = this.#handle(holdfast)
    await handle?.answer(ask, answer)
    return handle !== null
  }

  #handle({ authority, by }: Holdfast): AttachmentHandle | null {
    const { AttachmentHandle } = this.#options.modules.core
    const held = { id: this.session, by, access: null }
    return this.#known === null ? null : new AttachmentHandle(authority, held, this.#known)
  }

  async #attach(): Promise<void> {
    const { random } = this.#options
    const { session } = this
    const answers = random.pick([[], ['permission'], ['permission', 'choice']])
    const take = random.chance(0.5)
    const work = async (holdfast: Holdfast, node: Node): Promise<Facts> => {
      const options = { answers, take, resumable: this.#isResumable }
      const { id, epoch, token } = await holdfast.session(session).attach(options)
      this.#known = { id, epoch, token }
      this.#at = node
      return { session, attachment: id }
    }
    await this.#clients.perform({ kind: 'attach', session }, false, work)
  }

  #resume(): Promise<Outcome> {
    return this.#perform('resume', null, async (holdfast, node) => {
      const token = this.#known?.token ?? null
      const handle = this.#handle(holdfast)
      if (handle === null) return
      if (token === null) await handle.resume()
      const back =
        token === null ? handle : await holdfast.session(this.session).resume(handle.id, token)
      this.#known = { id: back.id, epoch: back.epoch, token: back.token }
      this.#at = node
      if (this.#options.random.chance(0.5)) await back.confirm()
    })
  }

  #lose(): Promise<Outcome> {
    return this.#perform('lose', this.#at, async (holdfast) => this.#handle(holdfast)?.lose())
  }

  /** A goodbye goes over the connection too. */
  #leave(): Promise<Outcome> {
    return this.#perform('leave', this.#at, async (holdfast) => this.#handle(holdfast)?.leave())
  }

  #perform(
    kind: 'lose' | 'resume' | 'leave',
    at: Node | null,
    work: (holdfast: Holdfast, node: Node) => Promise<void>,
  ): Promise<Outcome> {
    const { session } = this
    const attachment = this.#known?.id ?? ''
    const operation = { kind, session, attachment } as const
    const performed = async (holdfast: Holdfast, node: Node): Promise<Facts> => {
      await work(holdfast, node)
      return { session, attachment }
    }
    return this.#clients.perform(operation, at === null, performed, at)
  }
}
