/** A session in a program's hand. It holds nothing itself: every call goes to the authority. */
import {
  assertHas,
  assertMay,
  assertVisible,
  scopesOn,
  type Access,
  type Caller,
  type Operation,
} from './access.ts'
import {
  AttachmentHandle,
  postAnswer,
  unlessGone,
  WatcherHandle,
  type AttachOptions,
  type Held,
  type ResumeOptions,
} from './attachment-handle.ts'
import { findByToken } from './attachments.ts'
import type { Authority } from './authority.ts'
import { closedError } from './closing.ts'
import type { SettingsChange } from './commands.ts'
import { HoldfastError, invalid } from './errors.ts'
import type { SessionEvent } from './events.ts'
import type { FeedItem, Delta } from './feed-item.ts'
import { findGrant, namedGrants, type NamedGrant } from './grants.ts'
import {
  readMessages,
  readMessagesBefore,
  readPageBefore,
  readableRow,
  type MessagePage,
  type PageBefore,
} from './history.ts'
import { bearerOf, usableLink, newToken, tokenDigest } from './links.ts'
import type { LiveSession } from './live.ts'
import type { Ask, Attachment, Link, Note, Principal, Session, Settings, Share } from './state.ts'
import { readBlob, storeBlob, type GivenInput } from './parts.ts'
import { overviewOf, type Overview } from './overview.ts'
import {
  checkLink,
  checkPrincipal,
  checkShare,
  turnRequest,
  type LinkOptions,
  type TurnOptions,
} from './requests.ts'
import {
  checkedNowAndThen,
  closedFeed,
  readableEvents,
  whileVisible,
  type FollowOptions,
} from './readable-events.ts'
import type { Message } from './runner.ts'
import { changedSettings, checkSettings } from './settings.ts'
import type { KeyedTurn, ReadResult } from './store.ts'
import {
  readTurn,
  TurnHandle,
  type Admission,
  type SubmittedTurn,
  type TurnRecord,
} from './turn-record.ts'
import { watcherId } from './watchers.ts'

export class SessionHandle {
  readonly id: string
  /** The key it was resolved by, if any. */
  readonly key: string | null
  /** This very call created it. */
  readonly isNew: boolean
  /** On whose behalf it acts: recorded with what is done through it. */
  readonly by: Principal
  /** What it may see and do; null: everything. */
  readonly access: Access | null
  readonly #authority: Authority

  constructor(
    authority: Authority,
    { by, access }: Caller,
    { id, key = null, isNew = false }: { id: string; key?: string | null; isNew?: boolean },
  ) {
    this.#authority = authority
    this.by = by
    this.access = access
    this.id = id
    this.key = key
    this.isNew = isNew
  }

  /** The same session on behalf of a principal, with what that may see and do. */
  as(by: Principal, access: Access | null = null): SessionHandle {
    return new SessionHandle(this.#authority, { by: checkPrincipal(by), access }, this)
  }

  /** Throws unless its caller may do this. For doors, before they look for the session's owner. */
  assertMay(operation: Operation): Promise<void> {
    return assertMay(this.#authority, this, this.id, operation)
  }

  async #open(operation: Operation): Promise<LiveSession> {
    if (this.access !== null) await this.assertMay(operation)
    return this.#authority.open(this.id)
  }

  /** When it is known whether there is room for more; a turn is checked when it is admitted. */
  async #openMeasured(operation: Operation): Promise<LiveSession> {
    const live = await this.#open(operation)
    const measuring = this.#authority.usage.measuring(this.access, live.session)
    if (measuring === null) return live
    await measuring
    return this.#authority.open(this.id)
  }

  /** Throws if there is no room for what its caller wants to add. */
  async #openForMore(operation: Operation): Promise<LiveSession> {
    const live = await this.#openMeasured(operation)
    this.#authority.usage.ofOwner(this.access, live.session.principal)?.assertRoom()
    return live
  }

  /** The session as it is now, open or closed. */
  state(): Promise<Session> {
    return this.#view('session.read')
  }

  async #view(operation: Operation): Promise<Session> {
    if (this.access !== null) await this.assertMay(operation)
    return this.#authority.view(this.id)
  }

  /** The session as it is now, and all that waits for its turn in it. */
  async overview(): Promise<Overview> {
    return overviewOf(this.#authority, await this.state(), this.by)
  }

  /**
   * Waits for the lane, then runs. Await it for the result, or iterate it for the answer as it
   * comes.
   */
  turn(input: GivenInput, options: TurnOptions = {}): TurnHandle {
    return new TurnHandle(this.#enter(input, options), options, this)
  }

  async #enter(input: GivenInput, options: TurnOptions): Promise<Admission> {
    const request = turnRequest(input, options, this, this.#authority)
    const live = await this.#openMeasured('turn.run')
    return { live, ...(await live.queue.enter(request)) }
  }

  /** Records the turn in the queue and returns at once: it survives a crash there. */
  async submit(input: GivenInput, options: TurnOptions = {}): Promise<SubmittedTurn> {
    const request = turnRequest(input, options, this, this.#authority)
    const live = await this.#openMeasured('turn.run')
    const { turn, isSteered } = await live.queue.submit(request)
    return { ...(await live.readTurn(turn)), isSteered }
  }

  /** A turn as it is now. */
  async getTurn(turn: string): Promise<TurnRecord> {
    if (this.access !== null) await this.assertMay('session.read')
    return readTurn(this.#authority, this.id, turn)
  }

  /** The turn when it is over. */
  async finished(turn: string): Promise<TurnRecord> {
    const record = await this.getTurn(turn)
    if (record.endedAt !== null) return record
    const live = await this.#open('session.read')
    const ended = await live.finished(turn)
    assertVisible(this, live.session)
    return ended
  }

  /**
   * Takes back a request that waits and is not admitted, by the id that `overview` has. Its caller
   * is refused with `cancelled`, and nothing of it has happened.
   */
  async cancelRequest(request: string): Promise<void> {
    const live = await this.#open('turn.cancel')
    live.queue.cancelRequest(request)
  }

  /**
   * Lets a turn of the caller that waits run directly before another of them; null: after all of
   * them. The turns of other callers keep their places, as do turns that collect.
   */
  async moveTurn(turn: string, before: string | null): Promise<void> {
    const live = await this.#open('turn.move')
    await live.post({ type: 'move', turn, before, by: this.by })
  }

  /** Cancels a turn that waits or runs, and returns it when it is over. */
  async cancelTurn(turn: string, reason = 'cancelled'): Promise<TurnRecord> {
    if (this.access !== null) await this.assertMay('turn.cancel')
    const record = await this.getTurn(turn)
    if (record.endedAt !== null) return record
    const live = await this.#open('turn.cancel')
    const ended = await live.cancel(turn, reason, this.by)
    assertVisible(this, live.session)
    return ended
  }

  /**
   * What is in the log after a position, then what happens, as it happens, until the session ends.
   */
  async *events(options: FollowOptions = {}): AsyncGenerator<SessionEvent | Delta> {
    for await (const items of this.feed(options)) for (const { event } of items) yield event
  }

  /** Like `events`, in batches of all that is ready, each with its JSON. */
  async *feed(options: FollowOptions = {}): AsyncGenerator<readonly FeedItem[]> {
    yield* await this.openFeed(options)
  }

  /** The same, known to be there. For doors. */
  async openFeed(options: FollowOptions = {}): Promise<AsyncGenerator<readonly FeedItem[]>> {
    const { after = 0, afterDelta = 0, signal, presence = true, watcher, attachment } = options
    if (this.access !== null) await this.assertMay('session.read')
    const live = await this.#authority.openUnlessClosed(this.id)
    if (live !== null && watcher !== undefined && !live.watchers.has(watcher)) {
      throw new HoldfastError('not_owner', `session ${this.id} was let go: ask again`)
    }
    // The log may be ahead of what is known here; it alone can tell that there is no such place.
    const isAhead = live === null || after > live.session.seq
    const { row = null } = isAhead ? await this.read(after, 0) : {}
    if (live === null) {
      const scopes = scopesOn(this, readableRow(row, this.id))
      return closedFeed(this.#authority, this.id, { after, presence, scopes })
    }
    const feed = live.follow({ seq: after, delta: afterDelta }, signal, { presence, attachment })
    return this.access === null ? feed : whileVisible(feed, () => assertVisible(this, live.session))
  }

  /**
   * One page of the log, as far as its caller may read it; `position` is behind all of the page.
   * Throws if there is no such log, or it does not reach `after`.
   */
  async read(after: number, limit: number): Promise<ReadResult & { readonly position: number }> {
    if (this.access !== null) await this.assertMay('session.read')
    const { row, events } = await this.#authority.store.read(this.id, after, limit)
    const found = readableRow(row, this.id)
    if (after > found.seq) throw invalid('after', `is ahead of the log, which ends at ${found.seq}`)
    const position = events.at(-1)?.seq ?? after
    return { row, events: readableEvents(events, scopesOn(this, found)), position }
  }

  /**
   * The page of the log that ends just before a position, or at its end, as far as its caller may
   * read it. `first`: where the page before ends; `position` is behind all of the page.
   */
  async readBefore(page: PageBefore) {
    if (this.access !== null) await this.assertMay('session.read')
    const { row, events, first } = await readPageBefore(this.#authority, this.id, page)
    const scopes = scopesOn(this, readableRow(row, this.id))
    const position = events.at(-1)?.seq ?? first - 1
    return { events: readableEvents(events, scopes), first, position }
  }

  /** Those of the newest request keys that begin so, the newest first. For doors. */
  async requestKeys(prefix: string): Promise<readonly KeyedTurn[]> {
    if (this.access !== null) await this.assertMay('session.read')
    return (await this.#authority.openUnlessClosed(this.id))?.requestKeys.alike(prefix) ?? []
  }

  /** The conversation, oldest first. */
  async *messages(): AsyncGenerator<Message> {
    if (this.access !== null) await this.assertMay('session.read')
    const messages = readMessages(this.#authority, this.id)
    yield* checkedNowAndThen(messages, () => this.assertMay('session.read'))
  }

  /** The last messages of the conversation before a position, oldest first. */
  async messagesBefore(page: PageBefore): Promise<MessagePage> {
    if (this.access !== null) await this.assertMay('session.read')
    return readMessagesBefore(this.#authority, this.id, page)
  }

  /** Stores the bytes of an image or a file, for parts that name them by this digest. */
  async putBlob(data: Uint8Array): Promise<string> {
    const live = await this.#openMeasured('turn.run')
    return storeBlob(this.#authority, live, { access: this.access, data })
  }

  /** The bytes of a part. */
  async readBlob(digest: string): Promise<Uint8Array> {
    await this.read(0, 0)
    return readBlob(this.#authority.store, this.id, digest)
  }

  /** The questions that wait for an answer. */
  async asks(): Promise<readonly Ask[]> {
    return (await this.state()).asks
  }

  /** Answers a question; the first valid answer wins, later ones are refused with `ask_settled`. */
  async answer(ask: string, answer: unknown) {
    if (this.access !== null) await this.assertMay('ask.answer')
    return postAnswer(this.#authority, this, { ask, answer, attachment: null })
  }

  /** Changes how its agent is to work from the next turn on, or at once if the agent can. */
  async configure(change: SettingsChange): Promise<Settings> {
    const live = await this.#openForMore('session.configure')
    const settings = checkSettings(change)
    live.assertHonoured(changedSettings(live.session.settings, settings))
    await live.post({ type: 'configure', settings, by: this.by })
    return live.session.settings
  }

  /** Holds the session open for a client and says which kinds of ask it answers. */
  async attach(options: AttachOptions = {}): Promise<AttachmentHandle> {
    if (options.role === 'watcher') return this.#watch(options)
    const { answers = [], take = false, resumable = false } = options
    if (this.access !== null && answers.length > 0) await this.assertMay('ask.answer')
    const live = await this.#openForMore('turn.run')
    const attachment = this.#authority.entropy.id()
    const token = resumable ? newToken(this.#authority) : null
    const link = this.#linkOf(live, options)?.id ?? null
    const shown = token === null ? null : tokenDigest(this.#authority, 'resume', this.id, token)
    const place = { attachment, answers, take, token: shown, link, use: options.use }
    const command = { type: 'attach', ...place, by: this.by } as const
    await live.post(unlessGone(command, options.signal))
    return this.#attachment({ id: attachment, epoch: 1, token })
  }

  #attachment(connection: Held): AttachmentHandle {
    return new AttachmentHandle(this.#authority, this, connection)
  }

  /** Looks on: nothing is recorded, unless a link counts its uses. */
  async #watch(options: AttachOptions): Promise<AttachmentHandle> {
    const live = await this.#open('session.read')
    const id = watcherId(this.#authority.entropy.id())
    const link = this.#linkOf(live, options)
    const use = link?.usedBy?.find((known) => known === options.use) ?? id
    await live.watch({ id, link: link?.id ?? null, use, by: this.by })
    return new WatcherHandle(this.#authority, live, this, { id, token: use })
  }

  /** The watcher that came in by this use of a link, if it is there. */
  async watcherOf(use: string): Promise<string | null> {
    return (await this.#open('session.read')).watchers.byUse(use)?.id ?? null
  }

  #linkOf({ session }: LiveSession, { link, likewise, use }: AttachOptions): Link | null {
    const now = this.#authority.clock.now()
    if (link !== undefined) {
      const digest = tokenDigest(this.#authority, 'link', this.id, link)
      return usableLink(session, { digest, use }, now)
    }
    return likewise?.link === undefined ? null : usableLink(session, { id: likewise.link }, now)
  }

  /** Takes a lost attachment up again, by the token of its last connection; it gets a new one. */
  async resume(
    attachment: string,
    token: string,
    { answers = null, signal }: ResumeOptions = {},
  ): Promise<AttachmentHandle> {
    if (this.access !== null && answers !== null && answers.length > 0) {
      await this.assertMay('ask.answer')
    }
    const live = await this.#open('turn.run')
    const next = newToken(this.#authority)
    const [shown, fresh] = [token, next].map((text) =>
      tokenDigest(this.#authority, 'resume', this.id, text),
    ) as [string, string]
    const { by } = this
    const command = { type: 'resume', attachment, answers, shown, token: fresh, by } as const
    const [event] = await live.post(unlessGone(command, signal))
    const epoch = event?.type === 'attachment.resumed' ? event.epoch : 0
    return this.#attachment({ id: attachment, epoch, token: next })
  }

  /**
   * The attachment that this token is good for, and whether a newer one was given out, which was
   * not confirmed; throws as `resume` would.
   */
  async attachmentOf(
    attachment: string,
    token: string,
  ): Promise<{ readonly held: Attachment; readonly isReplaced: boolean }> {
    const { session } = await this.#open('session.read')
    const shown = tokenDigest(this.#authority, 'resume', this.id, token)
    const held = findByToken(session, attachment, shown)
    return { held, isReplaced: held.tokens[0] !== shown }
  }

  /** Whether this token was good for an attachment that ended not long ago. */
  async wasAttached(before: { attachment: string; token: string }): Promise<boolean> {
    const { ended } = await this.state()
    const digest = tokenDigest(this.#authority, 'resume', this.id, before.token)
    return ended.some(({ id, tokens }) => id === before.attachment && tokens.includes(digest))
  }

  /** Makes a link to this session. Its token is returned once; only its digest is kept. */
  async createLink(options: LinkOptions): Promise<Link & { readonly token: string }> {
    const live = await this.#openForMore('link.manage')
    assertHas(this, live.session, options.scopes)
    const token = newToken(this.#authority)
    const digest = tokenDigest(this.#authority, 'link', this.id, token)
    const { scopes, expiresAt = null, uses = null } = checkLink(options)
    const link = { id: this.#authority.entropy.id(), digest, scopes, expiresAt, uses }
    await live.post({ type: 'link', link, by: this.by })
    return { ...link, token }
  }

  /** The link of a token, if it is valid; throws `unauthorized` if not. */
  async link(token: string, use?: string): Promise<Link> {
    const session = await this.state()
    const digest = tokenDigest(this.#authority, 'link', this.id, token)
    const link = usableLink(session, { digest, use }, this.#authority.clock.now())
    // Only the bearer of a valid link learns that its session is closed.
    if (session.closed !== null) throw closedError(session)
    return link
  }

  /** Whether a link of it has this token, valid or not. The store says so, not its owner. */
  async hasLink(token: string): Promise<boolean> {
    const digest = tokenDigest(this.#authority, 'link', this.id, token)
    return (await this.#authority.store.read(this.id, 0, 0, [bearerOf(digest)])).row !== null
  }

  /** Ends a link, and the attachments and watchers that came in by it. */
  async revokeLink(link: string): Promise<void> {
    const live = await this.#open('link.manage')
    await live.post({ type: 'unlink', link, by: this.by })
  }

  /** The links of the session. */
  async links(): Promise<readonly Link[]> {
    return (await this.#view('link.manage')).links
  }

  /** What people have allowed its agent until it is closed. */
  async grants(): Promise<readonly NamedGrant[]> {
    return namedGrants(await this.state(), this.#authority.digest)
  }

  /** Takes back what was allowed, by its id: from the next turn on the agent asks again. */
  async revokeGrant(grant: string): Promise<void> {
    const live = await this.#open('ask.answer')
    const found = findGrant(live.session, grant, this.#authority.digest)
    if (found !== undefined) await live.post({ type: 'ungrant', grant: found, by: this.by })
  }

  /** What it is shared for, with principals and groups. */
  async shares(): Promise<readonly Share[]> {
    return (await this.#view('session.share')).shares
  }

  /** Lets a principal or a group do this with the session, by its id. */
  async share(share: Share): Promise<void> {
    const live = await this.#openForMore('session.share')
    const checked = checkShare(share)
    assertHas(this, live.session, checked.scopes)
    await live.post({ type: 'share', share: checked, by: this.by })
  }

  async unshare(principal: string): Promise<void> {
    const live = await this.#open('session.share')
    await live.post({ type: 'unshare', with: principal, by: this.by })
  }

  /**
   * Records a fact beside the turns, and returns its position in the log. For doors. What a client
   * adds (`turn.run`) needs room, what it takes away does not.
   */
  async note(note: Note, operation: Operation): Promise<number> {
    const isAdded = operation === 'turn.run'
    const live = await (isAdded ? this.#openForMore(operation) : this.#open(operation))
    const [event] = await live.post({ type: 'note', note, by: this.by })
    return event?.seq ?? 0
  }

  /** Closes the session for good: what is pending is settled, nothing is delivered any more. */
  async close(reason = 'closed'): Promise<Session> {
    if (this.access !== null) await this.assertMay('session.close')
    return this.#authority.close(this.id, reason, this.by)
  }

  /** Closes it, and erases its log and what its agent wrote; says what could not be removed. */
  async erase(): Promise<{ readonly left: readonly string[] }> {
    if (this.access !== null) await this.assertMay('session.close')
    const session = await this.#authority.close(this.id, 'erased', this.by)
    const left = await this.#authority.erase(this.id, session.agent)
    await this.#authority.archive?.remove([this.id])
    this.#authority.usage.erased(session)
    // Its log, which would tell by whom, is gone.
    const facts = { session: this.id, principal: this.access?.principal ?? null, by: this.by.id }
    this.#authority.diagnose('session_erased', 'a session was erased', facts)
    return { left }
  }
}
