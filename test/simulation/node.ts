/** One Holdfast in its process, and the connections that clients have to it. */
import type { Holdfast, Limits, Runner } from '../../src/core/index.ts'
import type { History } from './history.ts'
import type { Modules } from './modules.ts'
import type { Process } from './process.ts'
import type { Random } from './random.ts'
import type { SharedStore } from './store.ts'

/** What a client sees when the node at the other end is gone. */
export class ConnectionLost extends Error {
  readonly code = 'connection_lost'
}

export type NodeOptions = {
  readonly process: Process
  readonly modules: Modules
  readonly store: SharedStore
  readonly runners: Readonly<Record<string, Runner>>
  readonly limits: Partial<Limits>
  readonly random: Random
  readonly history: History
}

export class Node {
  readonly process: Process
  readonly holdfast: Holdfast
  stopping = false
  /** Set once it has told that it is ready. */
  ready = false
  readonly #history: History
  readonly #random: Random
  /** Requests that arrive together. */
  #packet: (() => void)[] = []

  constructor(options: NodeOptions) {
    const { process, modules, store, runners, limits, random, history } = options
    this.process = process
    this.#history = history
    this.#random = random
    this.holdfast = new modules.core.Holdfast({
      store: store.connect(process),
      runners,
      clock: process.clock,
      entropy: { id: () => `s${random.between(0, 2 ** 48).toString(36)}` },
      digest: String,
      node: process.name,
      limits,
    })
    history.record({ type: 'node.up', node: this.name })
  }

  get name(): string {
    return this.process.name
  }

  /** It takes requests. One that is frozen does too, it only does not answer. */
  get reachable(): boolean {
    return this.process.state !== 'dead' && this.ready && !this.stopping
  }

  get #isDead(): boolean {
    return this.process.state === 'dead'
  }

  async start(): Promise<void> {
    await this.holdfast.authority.start()
    if (this.#isDead) return
    this.ready = true
    this.#history.record({ type: 'node.started', node: this.name })
  }

  /** A client's call. It fails when the node dies under it. */
  async request<Result>(work: (holdfast: Holdfast) => Promise<Result>): Promise<Result> {
    let forget = (): void => undefined
    try {
      return await new Promise<Result>((resolve, reject) => {
        forget = this.process.whenDead(() => reject(new ConnectionLost('the node is gone')))
        this.#send(() => void work(this.holdfast).then(resolve, reject))
      })
    } finally {
      forget()
    }
  }

  /** What is sent at the same time is often read at the same time too. */
  #send(arrive: () => void): void {
    if (this.#packet.length > 0 && this.#random.chance(0.8)) return void this.#packet.push(arrive)
    const packet = [arrive]
    this.#packet = packet
    this.process.after(1, () => {
      for (const next of packet.splice(0)) next()
    })
  }

  /** A proper end. What is left afterwards has leaked. */
  async stop(drainMs: number): Promise<void> {
    this.stopping = true
    this.#history.record({ type: 'node.stopping', node: this.name })
    await this.close(drainMs)
    if (this.#isDead) return
    this.#history.record({ type: 'node.stopped', node: this.name, ...this.inHand() })
    // Late answers may still come, and must not bring anything back to life.
    await this.process.sleep(30_000)
    if (this.#isDead) return
    this.#history.record({ type: 'node.stopped', node: this.name, ...this.inHand() })
    this.process.crash()
  }

  protected async close(drainMs: number): Promise<void> {
    await this.holdfast.close({ drainMs })
  }

  inHand(): { readonly timers: number; readonly held: number } {
    return { timers: this.process.timers, held: this.holdfast.authority.heldCount }
  }
}
