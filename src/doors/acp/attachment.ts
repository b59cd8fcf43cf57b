/**
 * One session that a connection has open: what its log says goes to the client, prompts of the
 * client become turns, and asks become requests to it. Each prompt is answered after the last
 * update of its turn. What the protocol calls acceptance, the state of a turn and a place to replay
 * from are apart here (`submit`, `TurnEndings`, `UpdateCursor`), as its version 2 has them.
 */
import {
  asHoldfastError,
  HoldfastError,
  type Ask,
  type AttachmentHandle,
  type Delta,
  type Role,
  type Session,
  type SessionEvent,
  type SessionHandle,
} from '../../core/index.ts'
import type { HubMember } from '../connect/hub.ts'
import type { ClientEnd } from './client-end.ts'
import { ClientRequests } from './client-requests.ts'
import { imageBlock, textBlock } from './content.ts'
import { cursorText, type UpdateCursor } from './cursor.ts'
import { notificationText, requestText, type RpcId, type RpcResponse } from '../json-rpc.ts'
import { configOptions, modeId } from './options.ts'
import { assertDrives, takePlace, type Place } from './place.ts'
import { OpenPrompts, PAGE_EVENTS, promptKeys } from './prompts.ts'
import { answerIn, questionFor } from './questions.ts'
import type { ParamsOf } from './schemas.ts'
import { commandsUpdate, UpdateTranslator, type Update } from './updates.ts'

export class AcpAttachment implements HubMember {
  readonly session: SessionHandle
  readonly #client: ClientEnd
  #place: Place
  readonly #translator: UpdateTranslator
  readonly #prompts: OpenPrompts
  readonly #requests: ClientRequests
  /** Turns of this client's prompts. */
  readonly #own: Set<string>
  /** The open ones, and of these the ones that the client has been asked. */
  readonly #asks = new Map<string, Ask>()
  readonly #asked = new Map<string, Ask>()
  /** What the client has been told before. */
  readonly #start: UpdateCursor
  /** How many updates of the first event after that it has as well. */
  #skip: number
  #isPastStart = false
  #seq: number
  /** Where the running turn began. */
  #from: number | null = null
  #feed: Awaited<ReturnType<SessionHandle['openFeed']>> | null = null
  #isFollowing = false
  #isOver = false
  #options = ''

  constructor(
    client: ClientEnd,
    session: SessionHandle,
    {
      place,
      start,
      own,
      state,
    }: {
      readonly place: Place
      readonly start: UpdateCursor
      readonly own: ReadonlySet<string>
      readonly state: Session
    },
  ) {
    this.#client = client
    this.session = session
    this.#place = place
    this.#own = new Set(own)
    const told = (): number => this.#seq
    this.#requests = new ClientRequests({
      session: session.id,
      offers: client.offers,
      newName: () => client.newName(),
      send: (text) => void client.send(text),
    })
    const requests = this.#requests
    this.#prompts = new OpenPrompts({ client, session, requests, ownTurns: this.#own, told })
    this.#start = start
    this.#seq = start.from
    this.#skip = start.updates
    this.#options = this.#optionsOf(state)
    this.#translator = new UpdateTranslator((turn) => this.#isOwn(turn))
    this.#enter()
  }

  #enter(): void {
    const { hub } = this.#client
    hub.add(this)
    hub.greeted(this)
    hub.take(this.#place.attachment.id, this)
  }

  /** The turns of a client's own prompts, by their keys. */
  static async ownTurns(session: SessionHandle, clientId: string): Promise<ReadonlySet<string>> {
    const keyed = await session.requestKeys(promptKeys({ clientId }))
    return new Set(keyed.map(({ turn }) => turn))
  }

  /** While it is told what was said before, its own prompts are a part of that. */
  #isOwn(turn: string): boolean {
    return (this.#isFollowing || this.#start.seq > 0) && this.#own.has(turn)
  }

  get place(): Place {
    return this.#place
  }

  get at(): string {
    return cursorText(this.#cursor(0))
  }

  #cursor(updates: number): UpdateCursor {
    const seq = Math.max(this.#seq, this.#start.seq)
    return { from: Math.min(this.#from ?? seq, seq), seq, updates, chars: this.#translator.chars }
  }

  /** Tells what the log has, up to a position. */
  async catchUp(seq: number): Promise<void> {
    for (let after = this.#seq; after < seq && !this.isOver;) {
      const { events, position } = await this.session.read(after, PAGE_EVENTS)
      for (const { body } of events) {
        const event = JSON.parse(body) as SessionEvent
        if (event.seq <= seq) await this.#tell(event, event.seq)
      }
      // The log never ends before what was known of it: a page without progress is its end.
      if (position === after) break
      after = position
    }
    this.#seq = Math.max(this.#seq, seq)
    this.#passStart()
  }

  /** Tells all of it once more, to a client that has the session open and loads it. */
  async retell(seq: number): Promise<void> {
    const translator = new UpdateTranslator(() => false)
    for await (const event of this.#log(0, seq)) {
      for (const update of translator.take(event)) await this.#send(update, this.at)
    }
  }

  async *#log(after: number, end: number): AsyncGenerator<SessionEvent> {
    for (let from = after; from < end && !this.isOver;) {
      const { events, position } = await this.session.read(from, PAGE_EVENTS)
      for (const { body } of events) {
        const event = JSON.parse(body) as SessionEvent
        if (event.seq <= end) yield event
      }
      // The log never ends before what was known of it: a page without progress is its end.
      if (position === from) return
      from = position
    }
  }

  /**
   * The response that opened the session has been sent. `replays`: what was said before follows.
   * `commands`: of the agent, for a client that has not read of them.
   */
  begin(replays: number | null, commands: Session['commands']): void {
    const told = replays === null ? Promise.resolve() : this.catchUp(replays)
    void told
      .then(() => this.#begin(commands))
      .catch((thrown: unknown) => this.#gone(asHoldfastError(thrown)))
  }

  /** Tells what comes. */
  #begin(commands: Session['commands']): void {
    if (this.isOver || this.#isFollowing) return
    this.#passStart()
    this.#isFollowing = true
    if (commands !== null) void this.#update(commandsUpdate(commands), this.at)
    for (const ask of this.#asks.values()) this.#offer(ask)
    void this.#follow().then(
      () => this.#gone(new HoldfastError('session_closed', 'the session is closed')),
      (thrown: unknown) => this.#gone(asHoldfastError(thrown)),
    )
  }

  async #follow(): Promise<void> {
    const { attachment, role } = this.#place
    const watcher = role === 'watcher' ? attachment.id : undefined
    const options = {
      after: this.#seq,
      presence: false,
      attachment: attachment.id,
      ...(watcher === undefined ? {} : { watcher }),
    }
    const feed = await this.session.openFeed(options)
    this.#feed = feed
    if (this.isOver) return void (await feed.return(undefined))
    for await (const items of feed) {
      for (const { event, seq } of items) {
        if (this.isOver) return
        await this.#tell(event, seq)
      }
    }
  }

  /** The session is over for this client: closed, or not to be seen any more, or elsewhere. */
  #gone(error: HoldfastError): void {
    if (this.isOver) return
    if (error.retry) return this.#client.refuse(error)
    this.#prompts.fail(error)
    this.end('leave')
  }

  async #tell(event: SessionEvent | Delta, seq: number): Promise<void> {
    if (event.type === 'delta') return this.#tellAll(this.#translator.take(event))
    if (seq > this.#start.seq) this.#passStart()
    this.#note(event)
    const updates = this.#translator.take(event)
    const isKnown = seq <= this.#start.seq
    if (!isKnown) await this.#tellAll(updates, seq)
    this.#seq = seq
    await this.#effects(event, isKnown)
  }

  /** From here on the client has been told nothing but the beginning of a message. */
  #passStart(): void {
    if (this.#isPastStart) return
    this.#isPastStart = true
    this.#translator.chars = this.#start.chars
  }

  /** `seq`: of the event that they are all of; null: they are a part of a message. */
  async #tellAll(updates: readonly Update[], seq: number | null = null): Promise<void> {
    const skipped = seq === null || updates.length === 0 ? 0 : this.#skip
    if (skipped > 0) this.#skip = 0
    for (const [index, update] of updates.entries()) {
      const isLast = index === updates.length - 1
      if (isLast && seq !== null) this.#seq = seq
      if (index >= skipped)
        await this.#send(update, cursorText(this.#cursor(isLast ? 0 : index + 1)))
    }
  }

  /** Before its updates: whose turn it is. */
  #note(event: SessionEvent): void {
    if (event.type === 'turn.started') this.#from = event.seq - 1
    const keys = promptKeys(this.#client)
    if (!('keys' in event) || !event.keys?.some(({ key }) => key.startsWith(keys))) return
    this.#own.add(event.turn)
    if (event.type === 'turn.steering') this.#translator.steering(event.seq)
  }

  /** After its updates. */
  async #effects(event: SessionEvent, isKnown: boolean): Promise<void> {
    if (event.type === 'ask.opened') {
      const { ask: id, type: _, seq: _seq, at: _at, ...ask } = event
      this.#asks.set(id, { id, ...ask })
      if (this.#isFollowing) this.#offer({ id, ...ask })
    } else if (event.type === 'ask.settled') this.#settled(event.ask, isKnown)
    const isEnd = this.#prompts.told(event)
    if (isEnd) this.#from = null
    if (isEnd || event.type === 'session.configured') await this.#tellOptions()
  }

  /** An agent that has run may offer more than before. */
  async #tellOptions(): Promise<void> {
    if (!this.#isFollowing) return
    const state = await this.session.state()
    const options = this.#optionsOf(state)
    if (options === this.#options) return
    this.#options = options
    const { configOptions: all, currentModeId } = JSON.parse(options) as {
      configOptions: readonly { readonly id: string }[]
      currentModeId: string
    }
    await this.#send({ sessionUpdate: 'config_option_update', configOptions: all }, this.at)
    if (!all.some(({ id }) => id === 'mode')) return
    await this.#send({ sessionUpdate: 'current_mode_update', currentModeId }, this.at)
  }

  #optionsOf({ settings, agent }: Session): string {
    const capabilities = this.#client.capabilitiesOf(agent)
    const options = configOptions({ settings, capabilities })
    return JSON.stringify({ configOptions: options, currentModeId: modeId(settings) })
  }

  async #send({ image, ...update }: Update, at: string): Promise<void> {
    await this.#update({ ...update, ...(await this.#more(image, update)) }, at)
  }

  /** What the log alone does not have: the bytes of an image, and what the session costs by now. */
  async #more(image: Update['image'], { sessionUpdate }: Omit<Update, 'image'>): Promise<object> {
    if (image !== undefined) {
      return { content: imageBlock(image, await this.session.readBlob(image.digest)) }
    }
    if (sessionUpdate !== 'usage_update' || !this.#isFollowing) return {}
    const { costUsd: amount } = (await this.session.state()).usage
    return amount > 0 ? { cost: { amount, currency: 'USD' } } : {}
  }

  #update(update: Update, at: string): Promise<void> | null {
    const { id: sessionId } = this.session
    const params = { sessionId, update, _meta: { holdfast: { at } } }
    return this.#client.send(notificationText('session/update', params))
  }

  /** Tells people at this client something that is in no log. */
  notice(text: string): void {
    const update = { sessionUpdate: 'agent_message_chunk', content: textBlock(text) }
    void this.#update(update, this.at)
  }

  #offer(ask: Ask): void {
    if (!this.#place.isAsked || this.#asked.has(ask.id)) return
    const question = questionFor(this.session.id, ask, this.#client)
    if (question === null) return
    this.#asked.set(ask.id, ask)
    const { method, params } = question
    void this.#client.send(requestText(this.#requestId(ask.id), method, params))
  }

  /** The same for the same ask, so that a client which comes back knows it. */
  #requestId(ask: string): string {
    return `${this.session.id}/${ask}`
  }

  /** The first answer counts: where another client gave it, this one is told. */
  #settled(ask: string, isKnown: boolean): void {
    this.#asks.delete(ask)
    // A client that was away may still show it.
    const wasAway = !this.#isFollowing && !isKnown && this.#start.seq > 0
    if (!this.#asked.delete(ask) && !wasAway) return
    const params = { requestId: this.#requestId(ask) }
    void this.#client.send(notificationText('$/cancel_request', params))
  }

  /** The client has answered. One that does not want to leaves it to the others. */
  async answered(ask: string, response: RpcResponse): Promise<void> {
    if (this.#requests.answered(ask, response)) return
    const { result } = response
    const asked = this.#asked.get(ask)
    if (asked === undefined) return
    this.#asked.delete(ask)
    const answer = answerIn(asked, result)
    if (answer === undefined) return
    try {
      await this.#place.attachment.answer(ask, answer)
    } catch (thrown) {
      const error = asHoldfastError(thrown)
      // Another client was faster, or the turn is over.
      if (error.code === 'ask_settled' || error.code === 'session_closed') return
      this.#client.report(error)
    }
  }

  /** Accepts a prompt, and answers it when its turn is over and all of it was told. */
  async prompt(id: RpcId, params: ParamsOf<'session/prompt'>): Promise<object> {
    assertDrives(this.#place)
    return this.#prompts.take(id, params)
  }

  /** Cancels its own prompts; or the running turn of another client, if it has none. */
  async cancel(): Promise<void> {
    assertDrives(this.#place)
    if (this.#prompts.size > 0) return this.#prompts.cancelAll()
    const { running } = await this.session.state()
    if (running !== null) await this.session.cancelTurn(running.id)
  }

  /** The client has closed the session: its own prompts end with that. */
  leave(): void {
    this.#prompts.cancelAll()
    this.end('leave')
  }

  /** True if it is one of its own prompts. */
  cancelRequest(id: RpcId): boolean {
    return this.#prompts.cancelRequest(id)
  }

  /** Takes control, or gives it up. */
  async control(role: Role, take: boolean): Promise<void> {
    if (role === this.#place.role) return
    const { hub, isReturning: resumable, signal } = this.#client
    await this.#change(await takePlace(this.session, { hub, role, take, resumable, signal }), true)
  }

  async #change(place: Place, isLeaving: boolean): Promise<void> {
    const { attachment } = this.#place
    this.#client.hub.drop(this, attachment.id, false)
    // One that asked to look on is still asked what it may answer: it has been told before.
    this.#place = place
    this.#enter()
    for (const ask of this.#asks.values()) this.#offer(ask)
    if (isLeaving)
      await attachment
        .leave()
        .catch((thrown: unknown) => this.#client.report(asHoldfastError(thrown)))
  }

  /** The connection is over, or the client has closed the session. */
  end(how: 'leave' | 'lose'): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#prompts.fail(new HoldfastError('cancelled', 'the client has left the session'))
    this.#requests.fail()
    const { attachment } = this.#place
    void this.#feed?.return(undefined)
    this.#client.hub.drop(this, attachment.id, false)
    this.#client.forget(this)
    // A session that is gone meanwhile has ended its attachments already.
    void attachment[how]().catch(() => undefined)
  }

  /** As the hub sees it. */
  get attachment(): AttachmentHandle {
    return this.#place.attachment
  }

  get isOver(): boolean {
    return this.#isOver || this.#client.isOver
  }

  drives(session: string): boolean {
    return this.session.id === session && this.#place.role === 'driver'
  }

  isAlive(): Promise<boolean> {
    return this.#client.isAlive()
  }

  supersede(): void {
    this.refuse(new HoldfastError('superseded', 'continued in another connection'))
  }

  refuse(error: HoldfastError): void {
    this.#client.refuse(error)
  }

  turnOut(error: HoldfastError): void {
    this.#client.refuse(error)
  }

  /** The server looks for silent connections itself. */
  watch(): void {}

  /** Another client has taken control: this one looks on from now. */
  attachmentEnded(reason: string): void {
    if (reason === 'session_closed' || this.isOver) return
    void this.#demote(reason).catch((thrown: unknown) => this.#gone(asHoldfastError(thrown)))
  }

  async #demote(reason: string): Promise<void> {
    const { hub, signal } = this.#client
    const place = await takePlace(this.session, { hub, role: 'watcher', resumable: false, signal })
    await this.#change(place, false)
    const told = { at: this.at, role: 'watcher', reason }
    const update = { sessionUpdate: 'session_info_update', _meta: { holdfast: told } }
    await this.#send(update, this.at)
  }
}
