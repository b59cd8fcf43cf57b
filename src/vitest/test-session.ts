/**
 * One browser session of Vitest: a session of Holdfast, and the page that holds it.
 *
 * 1. At most one connection holds a session; the next is admitted after Vitest released the last.
 * 2. The session reports a lost connection to the authority, which decides what the loss means.
 * 3. Each call of Vitest to the page is a turn. A call that loses its page waits for the next one
 *    and is made again there; it settles when the session is over, at the latest.
 */
import { randomUUID } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  HoldfastError,
  type AttachmentHandle,
  type Input,
  type SessionHandle,
} from '../core/index.ts'
import type { Orchestrator } from './internals.ts'

/** How long a page may take from its HTML to its socket before another may have the session. */
const OPEN_MS = 5_000
/** A page that is being reloaded has closed its socket by then. */
const UNLOAD_MS = 250
/** How long a connection may be silent after a ping before it counts as dead. */
const PROBE_MS = 1_500
/** How long a call waits for the one before it. Vitest makes one at a time. */
const CALL_WAIT_MS = 600_000
/** How often a file is run whose page crashes every time. */
const ATTEMPTS_MAX = 3

/** A ping without a payload, as a server sends it: RFC 6455, 5.5.2. */
const PING = Buffer.from([0x89, 0x00])

const IN_USE =
  'This test session is open in another tab. Go on there, or close that tab and try again.'

/** What the authority calls it, and what it is for the person at the page. */
const REASONS: Readonly<Record<string, string>> = {
  connection_lost: 'its page went away, and its reconnect policy lets none come back',
  grace_over: 'its page went away and did not come back in time',
}

/** The calls to pages, by the id in the input of their turn. */
const calls = new Map<unknown, () => Promise<unknown>>()

/** The agent of all test sessions: it makes the call that the turn is for. */
export async function callPage({ input }: { readonly input: Input }): Promise<void> {
  await calls.get((input as { readonly call?: unknown }).call)?.()
}

/** For Vitest it is the page: the same, whichever connection that has. */
export class TestSession implements Orchestrator {
  readonly #session: Promise<SessionHandle>
  readonly #onOver: (reason: string) => void
  #attachment: AttachmentHandle | null = null
  #socket: Duplex | null = null
  #page: Orchestrator | null = null
  /** Why the last page to hold it is gone for good. */
  #gone: string | null = null
  /** Why the session is closed, or null. */
  over: string | null = null
  /** A page was served, and its socket is expected until this timer fires. */
  #opening: NodeJS.Timeout | null = null
  /** Called when the page, the socket or the state has changed. */
  readonly #waiting: (() => void)[] = []
  /** Reports to the authority, in order. */
  #told: Promise<void>
  /** Admissions, one at a time. */
  #admissions: Promise<unknown> = Promise.resolve()

  /** `onOver` is called once, when the session is closed. */
  constructor(session: Promise<SessionHandle>, onOver: (reason: string) => void) {
    this.#session = session
    this.#onOver = onOver
    this.#told = session.then(
      (session) => void this.#follow(session),
      (error: Error) => this.#end(error.message),
    )
  }

  /** No page holds it, and none is expected back. */
  get $closed(): boolean {
    return this.over !== null || this.#attachment === null
  }

  /** A page holds it, or has just been served and is about to connect. */
  get isTaken(): boolean {
    return this.#socket !== null || this.#opening !== null
  }

  /** The page's HTML goes out: its socket is expected next. Returns what takes that back. */
  open(): () => void {
    const opening = setTimeout(() => this.#endOpening(opening), OPEN_MS).unref()
    this.#opening = opening
    return () => this.#endOpening(opening)
  }

  #endOpening(opening: NodeJS.Timeout | null): void {
    if (opening === null || opening !== this.#opening) return
    clearTimeout(opening)
    this.#opening = null
    this.#changed()
  }

  /** Resolves when no page holds the session; throws if one keeps it. */
  async claim(): Promise<void> {
    await this.#until(() => this.#opening === null)
    await this.#vacate()
    await this.#told
  }

  /** Lets this connection have the session; throws the refusal. */
  admit(socket: Duplex): Promise<void> {
    const admission = this.#admissions.then(() => this.#admit(socket))
    this.#admissions = admission.catch(() => {})
    return admission
  }

  async #admit(socket: Duplex): Promise<void> {
    await this.#told
    await this.#vacate()
    await this.#told
    if (this.over !== null) throw closed(this.over)
    await this.#attach()
    this.#endOpening(this.#opening)
    this.#socket = socket
  }

  /** Takes the attachment up again, or makes one; the authority may refuse either. */
  async #attach(): Promise<void> {
    try {
      if (this.#attachment !== null) return await this.#attachment.resume()
    } catch (error) {
      if (!(error instanceof HoldfastError && error.code === 'attachment_ended')) throw error
    }
    this.#attachment = await (await this.#session).attach({ role: 'driver' })
  }

  /** Waits until no page holds it. A page that is alive keeps it: throws `in_use`. */
  async #vacate(): Promise<void> {
    const socket = this.#socket
    if (socket === null) return
    const released = this.#until(() => this.#socket !== socket)
    await Promise.race([released, sleep(UNLOAD_MS, null, { ref: false })])
    if (this.#socket !== socket) return
    if (await answersPing(socket)) throw new HoldfastError('in_use', IN_USE)
    socket.destroy()
    await released
  }

  /** Vitest has set up the admitted connection, and this is the page behind it. */
  connected(page: Orchestrator): void {
    this.#page = page
    this.#changed()
  }

  /** Vitest has taken the admitted connection. */
  get isConnected(): boolean {
    return this.#page !== null
  }

  /** Vitest lets go: of a connection that is closed, or of the page as a whole. */
  letGo(): void {
    if (this.#socket !== null && !this.#socket.destroyed) return this.close('stopped by Vitest')
    this.lost()
  }

  /** The connection is gone: what that means is the reconnect policy. */
  lost(): void {
    if (this.#socket === null) return
    this.#socket = null
    this.#page = null
    this.#changed()
    const attachment = this.#attachment
    this.#tell(async () => {
      await attachment?.lose()
      const { closed } = await (await this.#session).state()
      if (closed !== null) await this.#until(() => this.over !== null)
    })
  }

  /** Closes the page's own connection, if it has one. */
  $close(error?: Error): void {
    this.#page?.$close(error)
  }

  createTesters(options: Parameters<Orchestrator['createTesters']>[0]): Promise<unknown> {
    const files = options.files.map(({ filepath }) => filepath).join(', ')
    return this.#call(files, (page) => page.createTesters(options))
  }

  cleanupTesters(): Promise<unknown> {
    return this.#call('clean up', (page) => page.cleanupTesters())
  }

  /** Closes the session for good. */
  close(reason: string): void {
    if (this.over !== null) return
    this.#socket = null
    this.#end(reason)
    this.#tell(async () => {
      await (await this.#session).close(reason)
    })
  }

  #tell(work: () => Promise<void>): void {
    // Only a closed session or authority refuses: then `#follow` ends the session.
    this.#told = this.#told.then(work).catch(() => {})
  }

  /** Follows the log: an attachment that ended is removed, a closed session is over. */
  async #follow(session: SessionHandle): Promise<void> {
    try {
      for await (const event of session.events()) {
        if (event.type === 'attachment.ended') this.#leave(event.attachment, event.reason)
        if (event.type === 'session.closed') this.#end(this.#gone ?? event.reason)
      }
    } catch (error) {
      this.#end((error as Error).message)
    }
  }

  #leave(attachment: string, reason: string): void {
    if (this.#attachment?.id !== attachment) return
    this.#attachment = null
    this.#gone = REASONS[reason] ?? reason
    this.#changed()
  }

  #end(reason: string): void {
    if (this.over !== null) return
    this.over = reason
    this.#attachment = null
    this.#changed()
    this.#onOver(reason)
  }

  /** Makes a call to the page as a turn, and settles as the call does. */
  async #call(text: string, work: (page: Orchestrator) => Promise<unknown>): Promise<unknown> {
    const call = randomUUID()
    const called: Promise<unknown>[] = []
    calls.set(call, async () => {
      called.push(this.#perform(work))
      await called[0]
    })
    try {
      const session = await this.#session
      const { state, reason } = await session.turn({ text, call }, { waitMs: CALL_WAIT_MS })
      if (called.length === 0) throw new Error(`${text}: ${state}, ${reason ?? 'for no reason'}`)
      return await called[0]
    } finally {
      calls.delete(call)
    }
  }

  async #perform(work: (page: Orchestrator) => Promise<unknown>): Promise<unknown> {
    let lost: unknown = null
    for (let attempt = 1; ; attempt += 1) {
      const page = await this.#nextPage()
      if (page === null) throw lost ?? closed(this.over ?? this.#gone ?? 'it has no page')
      try {
        return await work(page)
      } catch (error) {
        if (!page.$closed || attempt === ATTEMPTS_MAX) throw error
        lost = error
      }
    }
  }

  /** The page, or the one that takes its place; null if none will come. */
  async #nextPage(): Promise<Orchestrator | null> {
    while (!this.$closed) {
      if (this.#page?.$closed === false) return this.#page
      await this.#change()
    }
    return null
  }

  async #until(isMet: () => boolean): Promise<void> {
    while (!isMet()) await this.#change()
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #changed(): void {
    for (const wake of this.#waiting.splice(0)) wake()
  }
}

function closed(reason: string): HoldfastError {
  return new HoldfastError('session_closed', `This test session is over: ${reason}.`)
}

/**
 * True as soon as the other side sends anything after a ping; false if it is silent for `PROBE_MS`,
 * or the connection closes.
 */
function answersPing(socket: Duplex): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (answered: boolean) => (): void => {
      clearTimeout(timer)
      socket.off('data', answer).off('close', closed)
      resolve(answered)
    }
    const answer = settle(true)
    const closed = settle(false)
    const timer = setTimeout(closed, PROBE_MS)
    socket.on('data', answer).on('close', closed)
    if (socket.destroyed) closed()
    else socket.write(PING)
  })
}
