/** What a client has that is attached to a session. It holds nothing itself. */
import { assertMay, scopesOn, standingOf, type Access, type Caller } from './access.ts'
import { askUnknown } from './asks.ts'
import type { Authority } from './authority.ts'
import type { AskCommand, Command } from './commands.ts'
import { HoldfastError } from './errors.ts'
import type { StopSignal } from './feed.ts'
import { wasAsk } from './history.ts'
import type { LiveSession } from './live.ts'
import { checkAskSize } from './questions.ts'
import type { Attachment, Principal, Role } from './state.ts'

/** How many more people have to allow it. */
export type Answered = { readonly missing: number }

export async function postAnswer(
  authority: Authority,
  { id: session, by, access }: Caller & { readonly id: string },
  answered: Pick<AskCommand & { type: 'answer' }, 'ask' | 'answer' | 'attachment'>,
): Promise<Answered> {
  const live = await authority.open(session)
  checkAskSize('the answer', answered.answer, authority.limits)
  const asked = live.session.asks.find(({ id }) => id === answered.ask)
  if (asked !== undefined) authority.rules.assertEdited(live.session, asked, answered.answer)
  const mayEdit = scopesOn({ by, access }, live.session).includes('edit')
  const standing = standingOf({ by, access }, live.session)
  try {
    await live.post({ type: 'answer', ...answered, by, mayEdit, standing })
    const left = live.session.asks.find(({ id }) => id === answered.ask)
    if (left === undefined) return { missing: 0 }
    return { missing: (left.people ?? 1) - (left.approvals ?? []).length }
  } catch (refusal) {
    const { ask } = answered
    const isSettled = refusal instanceof HoldfastError && refusal.code === 'ask_settled'
    if (!isSettled || (await wasAsk(authority.store, session, ask))) throw refusal
    throw askUnknown(session, ask)
  }
}

/** One connection of an attachment, and what it can be taken up again with. */
export type Held = { readonly id: string; readonly epoch: number; readonly token: string | null }

/** One client's hold on a session. */
export class AttachmentHandle {
  readonly id: string
  readonly session: string
  /** What it can be taken up again with. */
  readonly token: string | null
  readonly by: Principal
  readonly #access: Access | null
  readonly #authority: Authority
  #epoch: number

  constructor(
    authority: Authority,
    { id: session, by, access }: Caller & { readonly id: string },
    { id, epoch, token }: Held,
  ) {
    this.#authority = authority
    this.session = session
    this.by = by
    this.#access = access
    this.id = id
    this.token = token
    this.#epoch = epoch
  }

  /** Which of its connections this is. */
  get epoch(): number {
    return this.#epoch
  }

  /** The connection was lost: what that means is the session's reconnect policy. */
  async lose(): Promise<void> {
    const live = await this.#live()
    const { id, epoch } = this
    const { answerGraceMs } = this.#authority.limits
    await live.post({ type: 'lose', attachment: id, epoch, answerGraceMs })
  }

  /** The client is back within the grace time. For one without a token, which anybody may be. */
  async resume(by = this.by): Promise<void> {
    const live = await this.#live()
    const back = { answers: null, shown: null, token: null, by }
    const [event] = await live.post({ type: 'resume', attachment: this.id, ...back })
    if (event?.type === 'attachment.resumed') this.#epoch = event.epoch
  }

  /** The client has its token. */
  async confirm(): Promise<void> {
    await (await this.#live()).confirm({ attachment: this.id, epoch: this.epoch })
  }

  /** The client said goodbye. */
  async leave(reason = 'left'): Promise<void> {
    await (await this.#live()).post({ type: 'leave', attachment: this.id, reason })
  }

  async answer(ask: string, answer: unknown): Promise<Answered> {
    const { id: attachment, by, session } = this
    const caller = { by, access: this.#access }
    await assertMay(this.#authority, caller, session, 'ask.answer')
    const answered = { ask, answer, attachment }
    return postAnswer(this.#authority, { id: session, ...caller }, answered)
  }

  #live(): Promise<LiveSession> {
    return this.#authority.open(this.session)
  }
}

/** A client that only looks on. It ends with its connection, whichever way that ends. */
export class WatcherHandle extends AttachmentHandle {
  readonly #live: LiveSession

  constructor(
    authority: Authority,
    live: LiveSession,
    { by, access }: Caller,
    { id, token }: { readonly id: string; readonly token: string },
  ) {
    super(authority, { id: live.id, by, access }, { id, epoch: 1, token })
    this.#live = live
  }

  /** The session's owner still knows it. */
  get isHere(): boolean {
    return this.#live.watchers.has(this.id)
  }

  override async lose(): Promise<void> {
    this.#live.watchers.remove(this.id)
  }

  override async leave(): Promise<void> {
    await this.lose()
  }

  /** It has no token that would have to be confirmed. */
  override async confirm(): Promise<void> {}
}

export type AttachOptions = {
  readonly role?: Role
  readonly answers?: readonly string[]
  /** Take an exclusive session over from its live driver. */
  readonly take?: boolean
  /** It can be taken up again by a token, as a client over a socket does. */
  readonly resumable?: boolean
  /** The token of the link that lets it in. */
  readonly link?: string
  /** By the same link as this one, if it came in by a link. */
  readonly likewise?: Pick<Attachment, 'link'>
  /** The use of the link that this client came in by before, as a watcher: it needs no other. */
  readonly use?: string | undefined
  /** The client went away: if that is known before it is attached, it is not. */
  readonly signal?: Pick<StopSignal, 'aborted'>
}

export type ResumeOptions = Pick<AttachOptions, 'signal'> & {
  /** Null: as before. */
  readonly answers?: readonly string[] | null
}

/** A client that is gone when its command is decided gets no place. */
export function unlessGone(command: Command, signal: AttachOptions['signal']): () => Command {
  return () => {
    if (signal?.aborted !== true) return command
    throw new HoldfastError('cancelled', 'the client went away before it was attached')
  }
}
