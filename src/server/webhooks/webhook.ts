/**
 * One webhook, on the node that delivers it: it follows the change feed from the position that the
 * store keeps, and sends each event until its receiver confirms it.
 *
 * 1. At least once: the position moves behind a change only after all of its events were confirmed.
 * 2. In order: of a session one event is under way at a time, and the next not before it is
 *    confirmed. Events of several sessions are sent at the same time.
 * 3. What was confirmed is stored at once: the next node repeats at most what was under way.
 * 4. It sends only while its node holds it (`Store.holdWebhook`).
 */
import { messageOf, type Facts, type SessionChange } from '../../core/index.ts'
import { isFollowed } from '../../core/answerers.ts'
import { eventsOf, WEBHOOK_DEFAULTS, type WebhookOptions } from '../../schema/webhooks.ts'
import { EgressRule } from '../../platform/egress.ts'
import { askLinkUrl } from './ask-link-url.ts'
import { eventId, payloadOf } from './payload.ts'
import { send, type SendResult } from './sender.ts'
import { lastMessage, sessionEvents, type FoundEvent } from './session-events.ts'
import { keyOf, signedHeaders } from './signature.ts'
import { newState, readState, unpaused, type WebhookState } from './state.ts'
import type { WebhookContext } from './context.ts'

/** Sessions whose events are sent at the same time. */
const SESSIONS_AT_ONCE = 8
/** A receiver that answers so wants no more. */
const GONE = 410

type Outgoing = { readonly id: string; readonly body: string }

/** The events of one session that are to be sent, the next one known. */
type SessionStream = {
  readonly change: SessionChange
  readonly events: AsyncGenerator<FoundEvent>
  next: FoundEvent
}

export class Webhook {
  readonly options: WebhookOptions
  readonly #context: WebhookContext
  readonly #keys: readonly Buffer[]
  readonly #url: URL
  readonly #rule: EgressRule
  readonly #urlDigest: string
  readonly counts = { confirmed: 0, failed: 0 }
  /** Null: another node delivers it, or none does. */
  #state: WebhookState | null = null
  #heldUntil = 0
  #isDirty = false
  #saving: Promise<void> | null = null
  #ending = new AbortController()
  readonly #cut = new AbortController()
  #isClosed = false
  #holding: Promise<void> = Promise.resolve()
  #running: Promise<void> = Promise.resolve()
  #retryNow: () => void = () => undefined
  /** It counts as a client to ask. */
  #leave: Promise<() => void> | null = null

  constructor(options: WebhookOptions, context: WebhookContext, field: string) {
    this.options = options
    this.#context = context
    this.#keys = options.secrets.map((secret, index) => keyOf(secret, `${field}.secrets.${index}`))
    this.#url = new URL(options.url)
    this.#rule = EgressRule.read(options.allow ?? [], `${field}.allow`)
    this.#urlDigest = context.authority.digest(options.url)
  }

  /** Of this node. */
  get state(): WebhookState | null {
    return this.#state
  }

  /** Whether a state that no node holds is one to go on from. */
  isDue(body: string | null): boolean {
    const state = body === null ? null : readState(body)
    if (body !== null && state === null) return false
    return state === null || state.pausedAt === null || state.url !== this.#urlDigest
  }

  /** Takes it, if no other node has it. `isResumed`: even if it is paused. */
  hold(isResumed = false): Promise<void> {
    const holding = this.#holding.then(() => this.#hold(isResumed))
    // The caller gets the error; the next one only waits for the end.
    this.#holding = holding.catch(() => undefined)
    return holding
  }

  async #hold(isResumed: boolean): Promise<void> {
    const { authority, limits } = this.#context
    const { store, node, changes, clock } = authority
    if (this.#state !== null || this.#isClosed) return
    // What was under way when it was lost is over before anything is sent again.
    await this.#running
    const before = clock.monotonic()
    const held = await store.holdWebhook?.(this.options.name, node, limits.leaseMs)
    if (held === null || held === undefined) return
    const known = held.body === null ? null : readState(held.body)
    const isNewer = held.body !== null && known === null
    const isPaused = known !== null && known.pausedAt !== null && known.url === this.#urlDigest
    if (isNewer || (isPaused && !isResumed)) {
      await store.saveWebhook?.(this.options.name, node, held.body ?? '', 0)
      return
    }
    this.#heldUntil = this.#endOf(before)
    // A webhook that is new begins now.
    const { position } = known ?? (await changes.read(null, 0))
    const isFresh = known === null || isPaused || known.url !== this.#urlDigest
    const state = known ?? newState(this.#urlDigest, position)
    this.#state = isFresh ? unpaused(state, this.#urlDigest) : state
    this.#ending = new AbortController()
    await this.#save()
    this.#count()
    this.#running = this.#run()
  }

  /** Holds it for longer, and stores where it stands. */
  async renew(): Promise<void> {
    const isShared = this.#heldUntil !== Number.POSITIVE_INFINITY
    if (this.#isDirty || isShared) await this.#save()
  }

  retryNow(): void {
    this.#retryNow()
  }

  /** Ends it here, so that another node goes on. What is under way has a moment left. */
  async release(): Promise<void> {
    this.#isClosed = true
    await this.#holding
    this.#end()
    const { authority, limits } = this.#context
    const cancel = authority.clock.after(limits.farewellMs, () => this.#cut.abort())
    await this.#running
    cancel()
    if (this.#state !== null) await this.#giveUp()
  }

  async #giveUp(): Promise<void> {
    const body = JSON.stringify(this.#state)
    this.#state = null
    await this.#saving
    const { store, node } = this.#context.authority
    await store.saveWebhook?.(this.options.name, node, body, 0).catch((error: unknown) => {
      this.#report('store', { error: messageOf(error) })
    })
  }

  #end(): void {
    this.#ending.abort()
    this.#retryNow()
    this.#uncount()
  }

  /** One after the other; what changes meanwhile is in the next. */
  #save(): Promise<void> {
    this.#isDirty = true
    if (this.#state === null) return Promise.resolve()
    this.#saving ??= this.#saveAll()
    return this.#saving
  }

  async #saveAll(): Promise<void> {
    const { authority, limits } = this.#context
    const { store, node, clock } = authority
    try {
      while (this.#isDirty && this.#state !== null) {
        this.#isDirty = false
        const before = clock.monotonic()
        const body = JSON.stringify(this.#state)
        const isOurs = await store.saveWebhook?.(this.options.name, node, body, limits.leaseMs)
        if (isOurs === true) this.#heldUntil = this.#endOf(before)
        else this.#lose()
      }
    } catch (error) {
      // It is stored again soon, and nothing is sent once its time is over.
      this.#isDirty = true
      this.#report('store', { error: messageOf(error) })
    } finally {
      this.#saving = null
    }
  }

  /** Where only one node can be, it is never another's. */
  #endOf(heldAt: number): number {
    const { authority, limits } = this.#context
    const isShared = authority.store.cluster !== undefined
    return isShared ? heldAt + limits.leaseMs : Number.POSITIVE_INFINITY
  }

  /** Another node has it. */
  #lose(): void {
    this.#state = null
    this.#end()
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending
    while (!signal.aborted && this.#state !== null) {
      try {
        await this.#follow(this.#state, signal)
        // The feed is closed, or this is to end.
        return
      } catch (error) {
        if ((error as { code?: unknown }).code === 'changes_gone') await this.#begin()
        else await this.#wait(this.#context.limits.retryMs, error)
      }
    }
  }

  /** The feed does not reach back to the position: it goes on from the end. */
  async #begin(): Promise<void> {
    const { changes, clock } = this.#context.authority
    const state = this.#state
    if (state === null) return
    try {
      state.position = (await changes.read(null, 0)).position
      state.done = {}
      this.#leaveOut(state.confirmedAt, clock.now())
    } catch (error) {
      await this.#wait(this.#context.limits.retryMs, error)
    }
  }

  async #wait(ms: number, error: unknown): Promise<void> {
    this.#report('store', { error: messageOf(error) })
    await this.#pause(ms)
  }

  async #follow(state: WebhookState, signal: AbortSignal): Promise<void> {
    const { changes } = this.#context.authority
    const options = { after: state.position, signal, isEveryPage: true }
    await this.#tellGap(state)
    for await (const page of changes.follow(options)) {
      await this.#deliver(page.changes, state)
      if (signal.aborted) return
      await this.#tellGap(state)
      state.position = page.position
      for (const { row, seq } of page.changes) {
        if ((state.done[row.id] ?? 0) <= seq) delete state.done[row.id]
      }
      this.#isDirty = true
    }
  }

  /** All events of a page, of several sessions at a time. */
  async #deliver(changes: readonly SessionChange[], state: WebhookState): Promise<void> {
    const waiting = changes.filter(({ row }) => isFollowed(this.#filter, row))
    let streams: SessionStream[] = []
    while (!this.#ending.signal.aborted) {
      while (streams.length < SESSIONS_AT_ONCE && waiting.length > 0) {
        const stream = await this.#open(waiting.shift()!, state)
        if (stream !== null) streams.push(stream)
      }
      if (streams.length === 0) return
      // One that fails is tried with one event at a time.
      const round = state.failures > 0 ? streams.slice(0, 1) : streams
      const isConfirmed = await Promise.all(round.map((stream) => this.#sendNext(stream, state)))
      const over = new Set<SessionStream>()
      for (const [index, stream] of round.entries()) {
        if (isConfirmed[index] === true && !(await this.#advance(stream))) over.add(stream)
      }
      streams = streams.filter((stream) => !over.has(stream))
      if (isConfirmed.includes(false)) await this.#backOff(state)
    }
  }

  get #filter() {
    const { labels, agents, owners } = this.options
    return {
      ...(labels === undefined ? {} : { labels }),
      ...(agents === undefined ? {} : { agents }),
      ...(owners === undefined ? {} : { owners }),
    }
  }

  async #open(change: SessionChange, state: WebhookState): Promise<SessionStream | null> {
    const after = state.done[change.row.id] ?? 0
    const { authority } = this.#context
    const events = sessionEvents(authority, change, after, eventsOf(this.options))
    const { value, done } = await events.next()
    return done === true ? null : { change, events, next: value }
  }

  /** False: its session has no further event in this page. */
  async #advance(stream: SessionStream): Promise<boolean> {
    const { value, done } = await stream.events.next()
    if (done !== true) stream.next = value
    return done !== true
  }

  async #sendNext({ change: { row }, next }: SessionStream, state: WebhookState) {
    const { event } = next
    const isSent = this.#isTooOld(event.at, state) || (await this.#sendEvent(next, row, state))
    if (isSent) state.done[row.id] = event.seq
    if (isSent) void this.#save()
    return isSent
  }

  #isTooOld(at: number, { gap }: WebhookState): boolean {
    const { keepMs = WEBHOOK_DEFAULTS.keepMs } = this.options
    if (at > this.#context.authority.clock.now() - keepMs) return false
    this.#leaveOut(gap?.since ?? at, Math.max(at, gap?.until ?? 0))
    return true
  }

  #leaveOut(since: number | null, until: number): void {
    const { diagnose } = this.#context.authority
    if (this.#state === null) return
    if (this.#state.gap === null) {
      const message = 'a webhook could not be told of events for too long: they are left out'
      diagnose('webhook_gap', message, { webhook: this.options.name, since })
    }
    this.#state.gap = { since, until }
    void this.#save()
  }

  /** The receiver learns that events are missing, and of which time. */
  async #tellGap(state: WebhookState): Promise<void> {
    while (state.gap !== null && !this.#ending.signal.aborted) {
      const { since, until } = state.gap
      const data = {
        since: since === null ? null : new Date(since).toISOString(),
        until: new Date(until).toISOString(),
      }
      const id = `gap_${this.options.name}_${until}`
      if (await this.#attempt({ id, body: this.#ownBody('webhook.gap', data) }, state)) {
        state.gap = null
        await this.#save()
      } else await this.#backOff(state)
    }
  }

  #ownBody(type: string, data: object): string {
    const timestamp = new Date(this.#context.authority.clock.now()).toISOString()
    return JSON.stringify({ type, timestamp, data })
  }

  async #sendEvent(
    { event, isDecided }: FoundEvent,
    row: SessionChange['row'],
    state: WebhookState,
  ) {
    const { authority, redact } = this.#context
    const { include = [] } = this.options
    const isLinked = event.type === 'ask.opened' && include.includes('link') && !isDecided
    const hasAnswer = event.type === 'turn.done' && include.includes('text')
    const body = payloadOf(event, {
      ...{ row, include, redact, isDecided },
      link: isLinked ? await this.#linkTo(row.id, event.ask) : null,
      answer: hasAnswer ? await lastMessage(authority.store, row.id, event) : null,
    })
    return this.#attempt({ id: eventId(row.id, event.seq), body }, state)
  }

  async #linkTo(session: string, ask: string): Promise<string> {
    const { linkUrl = '' } = this.options
    return askLinkUrl(linkUrl, await this.#context.askLink(session, ask))
  }

  /** Whether the receiver has confirmed it. */
  async #attempt(outgoing: Outgoing, state: WebhookState): Promise<boolean> {
    const { clock } = this.#context.authority
    const { sendMs } = this.#context.limits
    // What is under way when another node takes over could come after what that sends.
    if (this.#heldUntil - clock.monotonic() < sendMs) await this.#save()
    if (this.#ending.signal.aborted) return false
    if (this.#heldUntil - clock.monotonic() < sendMs) return false
    const result = await this.#send(outgoing)
    if (result.isConfirmed) this.#confirmed(state)
    else this.#failed(state, result)
    return result.isConfirmed
  }

  #send({ id, body }: Outgoing): Promise<SendResult> {
    const { authority, resolver, limits } = this.#context
    const now = (): number => authority.clock.now()
    const timestamp = Math.floor(now() / 1_000)
    const headers = signedHeaders({ id, timestamp, body }, this.#keys)
    const endpoint = { url: this.#url, rule: this.#rule }
    const { signal } = this.#cut
    return send(endpoint, { body, headers }, { resolver, sendMs: limits.sendMs, signal, now })
  }

  /** One event that is about nothing, now, whatever the state. */
  test(): Promise<SendResult> {
    const { clock, entropy } = this.#context.authority
    const body = this.#ownBody('webhook.test', { webhook: this.options.name })
    return this.#send({ id: `test_${this.options.name}_${clock.now()}_${entropy.id()}`, body })
  }

  #confirmed(state: WebhookState): void {
    const { clock, diagnose } = this.#context.authority
    this.counts.confirmed += 1
    state.confirmedAt = clock.now()
    if (state.failures === 0) return
    const facts = { webhook: this.options.name, failures: state.failures }
    diagnose('webhook_recovered', 'the receiver of a webhook confirms again', facts)
    Object.assign(state, { failures: 0, failingSince: null, error: null, retryAt: null })
    this.#count()
  }

  #failed(state: WebhookState, { reason, status, retryAfterMs }: SendResult): void {
    const { clock, entropy } = this.#context.authority
    const { retryMs, retryMsMax } = this.#context.limits
    this.counts.failed += 1
    // Those that were sent together are one failure.
    if (state.retryAt !== null && state.retryAt > clock.now()) return
    const longest = Math.min(retryMs * 2 ** Math.min(state.failures, 30), retryMsMax)
    const waitMs = Math.max(retryAfterMs, Math.ceil(longest * (0.5 + fraction(entropy.id()) / 2)))
    state.failures += 1
    state.failingSince ??= clock.now()
    state.error = { reason: reason ?? 'status', status }
    state.retryAt = clock.now() + waitMs
    this.#uncount()
    this.#report(reason ?? 'status', { status, retryMs: waitMs, failures: state.failures })
  }

  /** Waits until the next attempt, or pauses the webhook. */
  async #backOff(state: WebhookState): Promise<void> {
    const { clock, diagnose } = this.#context.authority
    const { name, pauseAfterMs = WEBHOOK_DEFAULTS.pauseAfterMs } = this.options
    const { failingSince, error } = state
    const now = clock.now()
    const isGone = error?.status === GONE
    if (failingSince !== null && (isGone || now - failingSince >= pauseAfterMs)) {
      state.pausedAt = now
      const facts = { webhook: name, reason: error?.reason ?? null, status: error?.status ?? null }
      diagnose('webhook_paused', 'a webhook is paused: its receiver does not confirm', facts)
      this.#end()
      return this.#giveUp()
    }
    void this.#save()
    await this.#pause(state.retryAt === null ? this.#context.limits.retryMs : state.retryAt - now)
  }

  /** For so long, or until it is to be tried now, or ended. */
  async #pause(ms: number): Promise<void> {
    if (this.#ending.signal.aborted) return
    await new Promise<void>((resolve) => {
      const cancel = this.#context.authority.clock.after(Math.max(0, ms), resolve)
      this.#retryNow = () => {
        cancel()
        resolve()
      }
    })
    this.#retryNow = () => undefined
  }

  #count(): void {
    const { answers = [] } = this.options
    const isFailing = this.#state === null || this.#state.failures > 0
    if (answers.length === 0 || isFailing || this.#leave !== null) return
    const { answerers } = this.#context.authority
    this.#leave = answerers.join({ ...this.#filter, access: null, answers })
  }

  #uncount(): void {
    void this.#leave?.then((leave) => leave())
    this.#leave = null
  }

  #report(reason: string, facts: Facts): void {
    const message = 'a webhook could not be delivered, and is tried again'
    const { diagnose } = this.#context.authority
    diagnose('webhook_failed', message, { webhook: this.options.name, reason, ...facts })
  }
}

/** A number from 0 to 1 of an id that cannot be guessed. */
function fraction(id: string): number {
  return Buffer.from(id, 'base64url').readUInt32BE(0) / 2 ** 32
}
