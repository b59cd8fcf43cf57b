/**
 * Sockets in virtual time. What one socket carries arrives in the order in which it was sent, as TCP
 * has it; different ones overtake each other freely. A socket breaks at any moment: either side
 * learns of it at once, later, or never; one direction may go on while the other is dead; and what
 * was sent before may arrive long after another socket has taken its place.
 */
import type { ClientSocket, ClientSocketEvent } from '../../../src/client/platform.ts'
import type { Socket } from '../../../src/doors/connect/socket.ts'
import type { History } from '../history.ts'
import type { Process } from '../process.ts'
import type { Random } from '../random.ts'
import type { Timeline } from '../timeline.ts'

/** A server that sockets lead to. */
export interface Listener {
  readonly name: string
  readonly process: Process
  accept(socket: Socket): { receive(message: string): void; closed(): void }
}

export type NetworkOptions = {
  readonly timeline: Timeline
  readonly random: Random
  readonly history: History
  /** Who listens now. */
  readonly server: () => Listener | null
}

/** How long one message takes while nothing is wrong. */
const DELAY_MS_MAX = 120
/** What a machine takes from its process before the other one has read it. */
const KERNEL_BYTES = 3_000

export class Network {
  readonly options: NetworkOptions
  readonly links = new Set<Link>()
  /** Every resume token that was given out. */
  readonly tokens: { session: string; attachment: string; token: string }[] = []
  /** How often a socket does not even open. */
  foul = 0
  #opened = 0

  constructor(options: NetworkOptions) {
    this.options = options
  }

  /** A socket of this page. */
  open(by: string, process: Process): ClientSocket {
    this.#opened += 1
    const link = new Link(this, this.#opened, by, process)
    this.links.add(link)
    process.whenDead(() => link.clientDied())
    link.open(this.options.random.chance(this.foul))
    return link.clientEnd
  }

  /** The machine is gone, and with it what it had not sent. */
  serverDied(server: Listener): void {
    for (const link of [...this.links]) if (link.server === server) link.serverDied()
  }

  /** One of its ends stands still for a while. */
  pause(who: Process): void {
    for (const link of this.links) if (link.isBetween(who)) link.pause(who.name)
  }

  /** Sockets that both sides believe in. */
  get live(): readonly Link[] {
    return [...this.links].filter((link) => link.isUp)
  }

  socketsOf(by: string): number {
    return [...this.links].filter((link) => link.by === by && !link.isClientOver).length
  }

  delayMs(): number {
    const { random } = this.options
    return random.chance(0.8) ? random.between(1, 20) : random.between(1, DELAY_MS_MAX)
  }
}

/** One direction of a socket. */
class Pipe {
  isLost = false
  stalledUntil = 0
  readonly #network: Network
  readonly #to: () => Process | null
  #lastAt = 0
  /** Messages that arrive together. */
  #packet: (() => void)[] = []
  /** Packets that are there, and not read. */
  readonly #arrived: (readonly (() => void)[])[] = []

  constructor(network: Network, to: () => Process | null) {
    this.#network = network
    this.#to = to
  }

  /** `arrive` runs at the other end, in order; never if the pipe is lost by then. */
  send(arrive: () => void): void {
    const { timeline, random } = this.#network.options
    // What is sent shortly after each other is often read together.
    if (this.#packet.length > 0 && random.chance(0.4)) return void this.#packet.push(arrive)
    const packet = [arrive]
    this.#packet = packet
    const at = Math.max(this.#lastAt, this.stalledUntil, timeline.now + this.#network.delayMs())
    this.#lastAt = at
    timeline.after(at - timeline.now, () => {
      const together = packet.splice(0)
      if (this.isLost) return
      this.#arrived.push(together)
      // One that stands still takes up later what came meanwhile, and in this order.
      this.#to()?.deliver('message', () => {
        for (const next of this.#arrived.shift() ?? []) next()
      })
    })
  }
}

type Unsent = { readonly bytes: number; readonly left: () => void; hasLeft: boolean }

const decoder = new TextDecoder()

export class Link {
  readonly number: number
  readonly by: string
  server: Listener | null = null
  isClientOver = false
  isServerOver = false
  readonly #network: Network
  readonly #client: Process
  readonly #up: Pipe
  readonly #down: Pipe
  readonly #listeners = new Map<string, ((event: ClientSocketEvent) => void)[]>()
  #connection: ReturnType<Listener['accept']> | null = null
  /** The client knows that it is open. */
  #isOpen = false
  #unsent: Unsent[] = []

  constructor(network: Network, number: number, by: string, client: Process) {
    this.#network = network
    this.number = number
    this.by = by
    this.#client = client
    this.#up = new Pipe(network, () => this.server?.process ?? null)
    this.#down = new Pipe(network, () => client)
  }

  get isUp(): boolean {
    return this.#connection !== null && !this.isClientOver && !this.isServerOver
  }

  isBetween(process: Process): boolean {
    return this.#client === process || this.server?.process === process
  }

  pause(who: string): void {
    this.#note(`${who} stands still`)
  }

  open(isLost: boolean): void {
    const { timeline, server } = this.#network.options
    if (isLost) return
    timeline.after(this.#network.delayMs(), () => {
      const found = server()
      if (this.isClientOver) return
      if (found === null) return this.#down.send(() => this.#clientEnds(1006))
      this.server = found
      found.process.deliver('message', () => this.#accept(found))
    })
  }

  #accept(server: Listener): void {
    const { history } = this.#network.options
    history.record({ type: 'wire.opened', link: this.number, by: this.by, node: server.name })
    this.#connection = server.accept(this.#serverEnd())
    this.#down.send(() => {
      this.#isOpen = true
      this.#emit('open', {})
    })
    if (this.isClientOver) this.#up.send(() => this.#serverNotices('closed'))
  }

  get clientEnd(): ClientSocket {
    return {
      send: (data) => {
        if (this.isClientOver || !this.#isOpen) throw new Error('it is not open')
        this.#up.send(() => this.#serverHears(data))
      },
      close: () => this.#clientCloses(),
      addEventListener: (type, listener) => {
        this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener])
      },
    }
  }

  #clientCloses(): void {
    if (this.isClientOver) return
    this.isClientOver = true
    if (!this.isServerOver) this.#note('its page closed it')
    this.#up.send(() => this.#serverNotices('closed'))
    this.#forgetIfOver()
  }

  #clientEnds(code: number, reason = ''): void {
    if (this.isClientOver) return
    this.isClientOver = true
    this.#emit('error', {})
    this.#emit('close', { code, reason })
    this.#forgetIfOver()
  }

  #emit(type: string, event: ClientSocketEvent): void {
    for (const listener of this.#listeners.get(type) ?? []) listener(event)
  }

  #serverHears(text: string): void {
    if (!this.isServerOver) {
      this.#network.options.history.record({ type: 'wire.heard', link: this.number, text })
    }
    // Its library goes on reading until the other side has closed it too.
    this.#connection?.receive(text)
  }

  #serverNotices(how: string): void {
    if (this.isServerOver) return
    this.#serverEnds(how)
    this.#connection?.closed()
  }

  #serverEnds(how: string): void {
    this.isServerOver = true
    this.#network.options.history.record({ type: 'wire.ended', link: this.number, how })
    for (const unsent of this.#unsent.splice(0)) if (!unsent.hasLeft) unsent.left()
    this.#forgetIfOver()
  }

  #forgetIfOver(): void {
    if (this.isClientOver && (this.isServerOver || this.server === null)) {
      this.#network.links.delete(this)
    }
  }

  #serverEnd(): Socket {
    const bufferedBytes = (): number =>
      this.#unsent.reduce((sum, { hasLeft, bytes }) => sum + (hasLeft ? 0 : bytes), 0)
    return {
      address: this.by,
      get bufferedBytes() {
        return bufferedBytes()
      },
      send: (data, sent) => this.#serverSends(data, sent ?? (() => undefined)),
      close: (code, reason) => {
        if (this.isServerOver) return
        this.#serverEnds(`${code} ${reason}`)
        this.#down.send(() => this.#clientEnds(code, reason))
      },
      cut: () => {
        if (this.isServerOver) return
        this.#serverEnds('cut')
        this.#down.send(() => this.#clientEnds(1006))
      },
    }
  }

  #serverSends(data: string | Uint8Array, left: () => void): void {
    const { history } = this.#network.options
    const text = typeof data === 'string' ? data : decoder.decode(data)
    const link = this.number
    if (this.isServerOver) return void history.record({ type: 'wire.late', link, text })
    history.record({ type: 'wire.said', link, text })
    this.#noteToken(text)
    const unsent: Unsent = { bytes: text.length, left, hasLeft: false }
    this.#unsent.push(unsent)
    this.#leave()
    this.#down.send(() => {
      this.#unsent = this.#unsent.filter((other) => other !== unsent)
      this.server?.process.deliver('message', () => this.#leave())
      this.#emit('message', { data: text })
    })
  }

  /** What fits has left the server's process. */
  #leave(): void {
    let bytes = 0
    for (const unsent of this.#unsent) {
      bytes += unsent.bytes
      if (unsent.hasLeft || bytes > KERNEL_BYTES) continue
      unsent.hasLeft = true
      this.server?.process.after(0, unsent.left)
    }
  }

  #noteToken(text: string): void {
    if (!text.startsWith('{"type":"welcome"')) return
    const { session, attachment, resume } = JSON.parse(text) as {
      readonly session: { readonly id: string }
      readonly attachment: string
      readonly resume: string | null
    }
    if (resume === null) return
    this.#network.tokens.push({ session: session.id, attachment, token: resume })
  }

  /** What goes wrong with one socket. */
  mishap(what: Mishap): void {
    const { random, timeline } = this.#network.options
    this.#note(what)
    const later = timeline.now + random.between(200, 12_000)
    switch (what) {
      case 'dropped':
        return this.#drop(random.pick([0, 0, null, random.between(100, 8_000)]))
      case 'slow up':
        return void (this.#up.stalledUntil = later)
      case 'slow down':
        return void (this.#down.stalledUntil = later)
      case 'slow':
        this.#up.stalledUntil = later
        return void (this.#down.stalledUntil = later)
      case 'half up':
        return void (this.#up.isLost = true)
      case 'half down':
        return void (this.#down.isLost = true)
      case 'left behind':
        // The client has noticed, and comes back; all that it said is still on its way.
        this.#up.stalledUntil = later
        this.#down.isLost = true
        this.#up.send(() => this.#serverNotices('late'))
        return this.#client.deliver('message', () => this.#clientEnds(1006))
    }
  }

  /** Both directions are dead; the two sides notice by themselves, or by silence alone. */
  #drop(serverMs: number | null): void {
    const { random, timeline } = this.#network.options
    const clientMs = random.pick([0, 0, null, random.between(100, 8_000)])
    this.#up.isLost = true
    this.#down.isLost = true
    if (clientMs !== null) {
      timeline.after(clientMs, () => this.#client.deliver('message', () => this.#clientEnds(1006)))
    }
    if (serverMs === null) return
    timeline.after(serverMs, () =>
      this.server?.process.deliver('message', () => this.#serverNotices('noticed')),
    )
  }

  /** Its last words may be on their way for long; and nobody may ever say that it is gone. */
  clientDied(): void {
    if (this.isClientOver) return
    this.isClientOver = true
    this.#note('its page died')
    const { random, timeline } = this.#network.options
    if (random.chance(0.4)) this.#up.stalledUntil = timeline.now + random.between(100, 6_000)
    if (random.chance(0.8)) this.#up.send(() => this.#serverNotices('died'))
    else if (random.chance(0.5)) this.#up.isLost = true
  }

  serverDied(): void {
    this.#note('the server died')
    this.isServerOver = true
    const { random } = this.#network.options
    if (random.chance(0.3)) this.#down.isLost = true
    if (random.chance(0.8)) this.#down.send(() => this.#clientEnds(1006))
    this.#forgetIfOver()
  }

  /** From now on nobody can say that it works. */
  #note(what: string): void {
    this.#network.options.history.record({ type: 'wire.mishap', link: this.number, what })
  }
}

export const MISHAPS = {
  dropped: 8,
  'left behind': 9,
  slow: 2,
  'slow up': 3,
  'slow down': 3,
  'half up': 2,
  'half down': 2,
} as const

export type Mishap = keyof typeof MISHAPS
