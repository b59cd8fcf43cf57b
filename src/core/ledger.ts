/**
 * THE MAIN PATH of one session: commands wait -> decide -> append (durable) -> act, answer.
 *
 * All commands that wait when the last append is durable are decided together and appended
 * together. No effect happens and no caller is answered before the events are durable; that
 * includes refusals, which may depend on an event of the same step. If an append fails its outcome
 * is unknown, so the ledger is lost as a whole: the next request loads the session anew, under a
 * new epoch that fences the unknown append (I4, I5).
 */
import { attachedClients, Batch, statusAfter, type GroupCommit } from './commits.ts'
import type { Command } from './commands.ts'
import type { CoreContext } from './context.ts'
import { HoldfastError, asHoldfastError } from './errors.ts'
import type { SessionEvent } from './events.ts'
import { storedShares } from './links.ts'
import { blobsNamedBy } from './parts.ts'
import type { Queue } from './queue.ts'
import { admittedKeys } from './request-keys.ts'
import { expiresAt, isPending } from './session.ts'
import { snapshotOf } from './snapshots.ts'
import type { Ask, Session } from './state.ts'
import type { Append, AppendedAsks } from './store.ts'

/** The loaded session, which does what the events say. */
export interface LedgerSession {
  /** What the running turn has said since its last message, or null. */
  said(): string | null
  hasFollower(kind: string): boolean
  /** The event is durable. Called in log order. */
  act(event: SessionEvent, json: string): void
  /** All events of a step have been acted on, and their callers answered. */
  settled(): void
  lost(error: HoldfastError): void
}

type Envelope = {
  readonly command: Command | (() => Command)
  readonly settle: (events: readonly SessionEvent[]) => void
  readonly refuse: (error: unknown) => void
}

type LedgerTools = Pick<CoreContext, 'clock' | 'limits' | 'digest'> & {
  readonly commits: GroupCommit
}

export class Ledger {
  readonly epoch: number
  readonly #live: LedgerSession
  readonly #queue: Queue
  readonly #tools: LedgerTools
  #session: Session
  #snapshotSeq: number
  /** Characters of the last snapshot, if it was made here, and of the events since. */
  #snapshotChars = 0
  #tailChars = 0
  #mailbox: Envelope[] = []
  #committing: Batch | null = null
  #lost: HoldfastError | null = null

  constructor(
    live: LedgerSession,
    queue: Queue,
    { session, epoch, snapshotSeq }: { session: Session; epoch: number; snapshotSeq: number },
    tools: LedgerTools,
  ) {
    this.epoch = epoch
    this.#live = live
    this.#queue = queue
    this.#tools = tools
    this.#session = session
    this.#snapshotSeq = snapshotSeq
  }

  /** The session as the log has it. */
  get session(): Session {
    return this.#session
  }

  /** As it will be when what is being appended is durable. */
  get ahead(): Session {
    return this.#committing?.session ?? this.#session
  }

  get idle(): boolean {
    return this.#committing === null && this.#mailbox.length === 0
  }

  /**
   * The time of the next event: a log's times never run backwards, also when the clock is set back
   * or the last owner's was ahead. Deadlines that events carry are counted from it.
   */
  now(): number {
    return Math.max(this.#tools.clock.now(), this.ahead.updatedAt)
  }

  post(command: Envelope['command']): Promise<readonly SessionEvent[]> {
    return new Promise((settle, refuse) => this.send(command, settle, refuse))
  }

  /** Like `post`, but the callbacks run in the very step in which the events are acted on. */
  send(command: Envelope['command'], settle: Envelope['settle'], refuse: Envelope['refuse']): void {
    if (this.#lost !== null) return refuse(this.#lost)
    this.#mailbox.push({ command, settle, refuse })
    this.pump()
  }

  /** Decides what waits, unless the last step is not known to be durable yet. */
  pump(): void {
    if (this.#committing !== null || this.#lost !== null) return
    const batch = new Batch(this.#session, {
      at: this.now(),
      said: () => this.#live.said(),
      hasFollower: (kind) => this.#live.hasFollower(kind),
    })
    this.#committing = batch
    for (const { command, settle, refuse } of this.#mailbox.splice(0)) {
      batch.add(command, settle, refuse)
    }
    try {
      this.#queue.decide(batch)
    } catch (error) {
      return this.lose(asHoldfastError(error))
    }
    if (batch.events.length > 0) return void this.#append(batch)
    this.#committing = null
    batch.settle(() => undefined)
  }

  async #append(batch: Batch): Promise<void> {
    try {
      const outcome = await this.#tools.commits.append(this.#appendOf(batch))
      if (outcome === 'appended') return this.#committed(batch)
      this.lose(movedOn(this.#session.id))
    } catch (error) {
      this.lose(asHoldfastError(error))
    }
  }

  /** Gives the ledger up; what was not known to be durable is refused with `error`. */
  lose(error: HoldfastError): void {
    if (this.#lost !== null) return
    this.#lost = error
    this.#committing?.fail(error)
    this.#committing = null
    for (const { refuse } of this.#mailbox.splice(0)) refuse(error)
    this.#live.lost(error)
  }

  #appendOf({ session, events, bodies }: Batch): Append {
    const isDue = this.#snapshotDue(session.seq, bodies)
    const snapshot = isDue ? snapshotOf(session, this.#tools.digest) : null
    if (snapshot !== null) this.#snapshotChars = snapshot.length
    return {
      session: session.id,
      epoch: this.epoch,
      after: session.seq - events.length,
      events: bodies,
      snapshot,
      at: session.updatedAt,
      closed: session.closed !== null,
      pending: isPending(session),
      expiresAt: expiresAt(session),
      ...statusAfter(session, events),
      attached: attachedClients(session),
      ...(changesAudience(session, this.#session, events) ? { shares: storedShares(session) } : {}),
      ...(session.asks === this.#session.asks
        ? {}
        : { asks: changedAsks(this.#session.asks, session.asks) }),
      ...this.#keysOf(session, events),
      ...namedBlobs(events),
    }
  }

  #keysOf({ updatedAt }: Session, events: readonly SessionEvent[]): Pick<Append, 'keys'> {
    const added = events.flatMap(admittedKeys)
    if (added.length === 0) return {}
    const { idempotencyMs, idempotencyKeysMax } = this.#tools.limits
    const since = updatedAt - idempotencyMs
    return { keys: { added, since, max: idempotencyKeysMax } }
  }

  #snapshotDue(seq: number, bodies: readonly string[]): boolean {
    const { snapshotEvery, snapshotChars } = this.#tools.limits
    for (const { length } of bodies) this.#tailChars += length
    // A large snapshot is not written again before its own length of events has come.
    const isWorthIt = this.#tailChars >= this.#snapshotChars
    const isDue = seq - this.#snapshotSeq >= snapshotEvery && isWorthIt
    if (!isDue && this.#tailChars < snapshotChars) return false
    this.#snapshotSeq = seq
    this.#tailChars = 0
    return true
  }

  #committed(batch: Batch): void {
    if (this.#lost !== null) return
    this.#session = batch.session
    batch.settle((event, json) => this.#live.act(event, json))
    this.#committing = null
    this.#live.settled()
    this.pump()
  }
}

function namedBlobs(events: readonly SessionEvent[]): Pick<Append, 'blobs'> {
  const blobs = events.flatMap(blobsNamedBy)
  return blobs.length === 0 ? {} : { blobs: [...new Set(blobs)] }
}

/**
 * An ask that is opened and settled in the same step is in neither list, one that has changed in
 * both.
 */
function changedAsks(before: readonly Ask[], after: readonly Ask[]): AppendedAsks {
  const missing = (asks: readonly Ask[], from: readonly Ask[]) =>
    asks.filter((ask) => !from.includes(ask))
  return {
    opened: missing(after, before).map((ask) => {
      return { id: ask.id, kind: ask.kind, body: JSON.stringify(ask) }
    }),
    settled: missing(before, after).map(({ id }) => id),
  }
}

/** Another node owns the session. */
export function movedOn(session: string): HoldfastError {
  return new HoldfastError('stale_epoch', `session ${session} has moved on`)
}

/** Whether these events change who may see the session. */
function changesAudience(
  { shares }: Session,
  before: Session,
  events: readonly SessionEvent[],
): boolean {
  if (shares !== before.shares) return true
  return events.some(({ type }) => type === 'link.created' || type === 'link.revoked')
}
