/**
 * Loads a session that was claimed: from its snapshot and the events after it, or from its whole
 * log if the snapshot is not to be used. Whatever cannot be folded is refused as a whole with
 * `session_unreadable`; no session is ever half folded.
 */
import type { CoreContext } from './context.ts'
import { HoldfastError, messageOf } from './errors.ts'
import { unreadable } from './events.ts'
import { readEvent, readEvents, readOutput } from './history.ts'
import type { LoadedState } from './live.ts'
import { createSession, evolve } from './session.ts'
import { readSnapshot, type SnapshotProblem } from './snapshots.ts'
import type { Session } from './state.ts'
import type { Claim, StoredEvent } from './store.ts'

type LoadContext = Pick<CoreContext, 'store' | 'clock' | 'digest' | 'limits' | 'diagnose'>

/** `snapshotSeq` is 0 if there is no snapshot that can be used. */
type FoldedSession = { readonly session: Session; readonly snapshotSeq: number }

/** What a session was loaded from, and why the turn that ran in it was cut short. */
export type LoadedSession = LoadedState & { readonly takenOver: boolean }

/** Claims and loads the sessions of one node. */
export class SessionLoader {
  readonly #context: LoadContext
  readonly #node: string
  readonly #losses = new Losses()
  readonly #refolded = new RefoldedSessions()
  readonly #failures: LoadFailures

  constructor(context: LoadContext, node: string) {
    this.#context = context
    this.#node = node
    this.#failures = new LoadFailures(context)
  }

  /** This node lost the session while a turn ran in it. */
  lost(session: string): void {
    this.#losses.add(session)
  }

  /** Claims a session and folds its log; null if it is closed. */
  async load(id: string): Promise<LoadedSession | null> {
    const claim = claimed(id, this.#losses.judge(id, await this.#claim(id)))
    const { epoch, takenOver = false } = claim
    if (epoch === null) return null
    try {
      this.#failures.assertMayLoad(id)
      const folded = await this.#fold(claim)
      const said = await saidBefore(this.#context, folded.session)
      return { ...folded, epoch, said, takenOver }
    } catch (thrown) {
      throw await this.giveUp(id, epoch, thrown)
    }
  }

  /** Why the turn that ran in a loaded session was cut short. `isShared`: there are other nodes. */
  reasonOf(
    { session, takenOver }: LoadedSession,
    isShared: boolean,
  ): 'hold_lost' | 'node_lost' | 'server_crashed' {
    return this.#losses.reasonOf(session.id, takenOver, isShared)
  }

  /** The state of a closed session. */
  async readClosed(id: string): Promise<Session> {
    this.#failures.assertMayLoad(id)
    const claim = claimed(id, await this.#claim(id))
    try {
      return (await this.#fold(claim)).session
    } catch (thrown) {
      throw isUnreadable(thrown) ? this.#failures.note(id, thrown) : thrown
    }
  }

  /**
   * A session that cannot be read is not owned by this node any more: another one may be able to
   * read it. A failure of the store or the lease is no reason for that.
   */
  async giveUp(id: string, epoch: number, thrown: unknown): Promise<unknown> {
    if (!isUnreadable(thrown)) return thrown
    const error = this.#failures.note(id, thrown)
    this.#losses.forget(id)
    // A store that cannot be reached now has this node as the owner until its lease ends.
    await this.#context.store.release(id, epoch).catch(() => undefined)
    return error
  }

  #claim(id: string): Promise<Claim> {
    return this.#context.store.claim(id, this.#node)
  }

  async #fold(claim: Claim & { readonly type: 'claimed' }): Promise<FoldedSession> {
    const { row, snapshot, tail } = claim
    const folding = new FoldedLog(row.id)
    const read = snapshot === null ? null : readSnapshot(snapshot, this.#context.digest)
    const problem = read === null || !('session' in read) ? read : misfit(read.session, claim)
    if (read !== null && 'session' in read && problem === null) folding.session = read.session
    const snapshotSeq = folding.session?.seq ?? 0
    if (problem !== null) {
      const fold = async (): Promise<Session> => {
        await refold(this.#context, folding, problem)
        return folding.finish(row)
      }
      // An open session gets another snapshot with its next events; a closed one never does.
      const session = claim.epoch === null ? this.#refolded.of(row.id, fold) : fold()
      return { session: await session, snapshotSeq }
    }
    folding.addAll(tail)
    return { session: folding.finish(row), snapshotSeq }
  }
}

const REFOLDED_MAX = 64

/**
 * Closed sessions that were folded from their logs, because their snapshots cannot be used. They do
 * not change any more: each is folded once, and not for every request.
 */
class RefoldedSessions {
  /** The oldest first. */
  readonly #sessions = new Map<string, Promise<Session>>()

  of(id: string, fold: () => Promise<Session>): Promise<Session> {
    const known = this.#sessions.get(id)
    if (known !== undefined) return known
    const folding = fold()
    this.#sessions.set(id, folding)
    // The caller gets the error; the next one tries again.
    folding.catch(() => this.#sessions.delete(id))
    const [oldest = id] = this.#sessions.keys()
    if (this.#sessions.size > REFOLDED_MAX) this.#sessions.delete(oldest)
    return folding
  }
}

/** What the turn that ran had said since its last message, as far as the log has it. */
async function saidBefore(context: LoadContext, { id, running }: Session): Promise<string | null> {
  return running === null ? null : readOutput(context, id, running.id)
}

/** Why the turn of a session that no node held any more was cut short. */
export class Losses {
  /** Sessions that this node lost while a turn ran in them, until it has them again. */
  readonly #lost = new Set<string>()

  add(session: string): void {
    this.#lost.add(session)
  }

  /** Forgets it unless it was claimed: another node has it, or it is over. */
  judge(session: string, claim: Claim): Claim {
    if (claim.type !== 'claimed' || claim.epoch === null) this.forget(session)
    return claim
  }

  forget(session: string): void {
    this.#lost.delete(session)
  }

  /** `takenOver`: another node held it last. `isShared`: other nodes may have held it. */
  reasonOf(
    session: string,
    takenOver: boolean,
    isShared: boolean,
  ): 'hold_lost' | 'node_lost' | 'server_crashed' {
    const isLost = this.#lost.delete(session)
    if (takenOver) return 'node_lost'
    if (isLost) return 'hold_lost'
    return isShared ? 'node_lost' : 'server_crashed'
  }
}

/** A snapshot of another log, or of another place than where the tail begins. */
function misfit(
  { id, seq }: Session,
  { row, tail }: Claim & { readonly type: 'claimed' },
): SnapshotProblem | null {
  const isOurs = id === row.id && Number.isInteger(seq) && seq >= 1
  if (isOurs && seq + tail.length === row.seq) return null
  return { kind: 'damaged', why: `it is of ${id} at ${seq}, and the log ends at ${row.seq}` }
}

async function refold(
  context: LoadContext,
  folding: FoldedLog,
  { kind, why }: SnapshotProblem,
): Promise<void> {
  const { id } = folding
  for await (const page of readEvents(context, id, 0)) folding.addAll(page)
  const message = `the snapshot of session ${id} is not used: ${why}; its log was read instead`
  const code = kind === 'damaged' ? 'snapshot_damaged' : 'snapshot_outdated'
  context.diagnose(code, message, { session: id })
}

/** A log while it is folded, event by event, and nothing but it. */
export class FoldedLog {
  readonly id: string
  session: Session | null = null

  constructor(id: string) {
    this.id = id
  }

  addAll(events: readonly StoredEvent[]): void {
    for (const stored of events) this.add(stored)
  }

  add(stored: StoredEvent): void {
    const { seq } = stored
    const last = this.session?.seq ?? 0
    const event = readEvent(stored, this.id)
    if (seq !== last + 1 || event.seq !== seq) {
      throw unreadable(this.id, `event ${event.seq} follows event ${last}`, { seq })
    }
    if ((event.type === 'session.created') !== (seq === 1)) {
      throw unreadable(this.id, `event ${seq} is ${event.type}`, { seq, type: event.type })
    }
    try {
      this.session =
        event.type === 'session.created'
          ? createSession(event)
          : evolve(this.session as Session, event)
    } catch (thrown) {
      if (thrown instanceof HoldfastError) throw thrown
      const why = `event ${seq} (${event.type}) cannot be folded: ${messageOf(thrown)}`
      throw unreadable(this.id, why, { seq, type: event.type })
    }
  }

  /** The folded session, which must be where its row says. */
  finish(row: { readonly seq: number; readonly state: string }): Session {
    const { session, id } = this
    if (session === null) throw unreadable(id, 'its log has no beginning')
    if (session.seq !== row.seq) {
      throw unreadable(id, `its log ends at ${session.seq}, its row says ${row.seq}`)
    }
    if ((session.closed !== null) !== (row.state === 'closed')) {
      throw unreadable(id, `its row says ${row.state}, its log does not`)
    }
    return session
  }
}

/** Whether a load failed by what the log holds, and not by the store or the lease. */
export function isUnreadable(thrown: unknown): thrown is HoldfastError {
  return thrown instanceof HoldfastError && thrown.code === 'session_unreadable'
}

/** So long a session that could not be loaded is not tried again. */
const FAILURE_MS = 60_000
const FAILURES_MAX = 1_000

/** Sessions that could not be loaded: each is reported once, and not tried again for a while. */
class LoadFailures {
  readonly #context: LoadContext
  readonly #failures = new Map<string, { readonly error: HoldfastError; readonly until: number }>()

  constructor(context: LoadContext) {
    this.#context = context
  }

  /** Throws what the last load threw, if that was not long ago. */
  assertMayLoad(id: string): void {
    const failure = this.#failures.get(id)
    if (failure !== undefined && this.#context.clock.monotonic() < failure.until)
      throw failure.error
  }

  note(id: string, error: HoldfastError): HoldfastError {
    const last = this.#failures.get(id)?.error
    if (last === error) return error
    const isNews = last?.message !== error.message
    this.#failures.delete(id)
    this.#failures.set(id, { error, until: this.#context.clock.monotonic() + FAILURE_MS })
    const [oldest = id] = this.#failures.keys()
    if (this.#failures.size > FAILURES_MAX) this.#failures.delete(oldest)
    const { seq = null, type = null } = error.details as { seq?: number; type?: string }
    if (isNews) {
      this.#context.diagnose('session_unreadable', error.message, {
        session: id,
        error: error.code,
        seq,
        type,
      })
    }
    return error
  }
}

export function erasedError(id: string): HoldfastError {
  return new HoldfastError('session_erased', `session ${id} is closed and its log was erased`)
}

/** What was claimed, or closed; throws if there is nothing to load, or another node has it. */
function claimed(id: string, claim: Claim): Claim & { readonly type: 'claimed' } {
  switch (claim.type) {
    case 'unknown':
      throw new HoldfastError('session_unknown', `there is no session ${id}`)
    case 'erased':
      throw erasedError(id)
    case 'owned':
      throw new HoldfastError('not_owner', `session ${id} is held by another node`, {
        node: claim.node,
      })
    case 'claimed':
      return claim
  }
}
