/**
 * A tab: pages come and go in it, and what it has stored stays, or turns out to be an old copy. Each
 * page is a process of its own with a real client session in it.
 */
import type { Client } from '../../../src/client/client.ts'
import type { ClientStorage } from '../../../src/client/platform.ts'
import type { History } from '../history.ts'
import type { Modules } from '../modules.ts'
import { Process } from '../process.ts'
import type { Random } from '../random.ts'
import type { Timeline } from '../timeline.ts'
import type { Network } from './network.ts'
import { Page, type PageKind } from './page.ts'
import { TOKEN } from './server.ts'

export type TabOptions = {
  readonly modules: Modules
  readonly timeline: Timeline
  readonly random: Random
  readonly history: History
  readonly network: Network
  readonly nextWish: () => number
}

export class Tab {
  readonly name: string
  readonly kind: PageKind
  page: Page | null = null
  readonly #options: TabOptions
  /** What was stored, the newest last. */
  readonly #stored: (string | null)[] = [null]
  #pages = 0
  /** The last page, as long as what it stored is still there. */
  #before: string | null = null

  constructor(name: string, kind: PageKind, options: TabOptions) {
    this.name = name
    this.kind = kind
    this.#options = options
  }

  /** A new page, which finds what the one before it has stored. */
  open(): void {
    this.#pages += 1
    const name = `${this.name}.${this.#pages}`
    const { modules, timeline, random, network } = this.#options
    const process = new Process(name, timeline, random)
    const client = modules.connect({
      url: 'ws://holdfast.test',
      token: TOKEN,
      // Called with `new`, it is the socket that counts.
      webSocket: function open() {
        return network.open(name, process)
      } as never,
      storage: this.kind.remembers ? this.#storage(process) : null,
      clock: process.clock,
      random: () => random.next(),
    }) satisfies Client
    const place = this.kind.remembers ? (this.#stored.at(-1) ?? null) : null
    const before = { place, page: this.#before }
    this.page = new Page(this.name, name, this.kind, process, client, before, this.#options)
    this.#before = name
  }

  #storage(process: Process): ClientStorage {
    const set = (value: string | null): void => {
      if (process.state !== 'dead') this.#stored.push(value)
    }
    return {
      getItem: () => this.#stored.at(-1) ?? null,
      setItem: (_key, value) => set(value),
      removeItem: () => set(null),
    }
  }

  /** The page is gone, without a word: crashed, or reloaded. */
  die(): void {
    this.page?.die()
    this.page = null
  }

  /** What it has stored is now what it had stored some time ago. */
  turnBack(): void {
    const older = this.#options.random.between(0, this.#stored.length - 1)
    this.#stored.splice(older + 1)
    this.#before = null
    this.#options.history.record({ type: 'tab.copied', tab: this.name, why: 'turned back' })
  }

  /** Another tab that begins with a copy of what this one has stored. */
  clone(name: string): Tab {
    const tab = new Tab(name, this.kind, this.#options)
    tab.#stored.push(this.#stored.at(-1) ?? null)
    for (const { name: both } of [this, tab]) {
      this.#options.history.record({ type: 'tab.copied', tab: both, why: 'cloned' })
    }
    return tab
  }
}
