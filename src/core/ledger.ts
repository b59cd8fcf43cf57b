/**
 * THE MAIN PATH of one session: commands wait -> decide -> append (durable) -> act, in order.
 *
 * All commands that wait when the last append is durable are decided together and appended
 * together. Nobody is told anything, and nothing is done, before the events that say so are
 * durable; that goes for refusals too, which may rest on an event of the same step. If an append
 * fails its outcome is unknown, so the ledger is lost as a whole: whoever needs the session next
 * loads it anew, under a new epoch that fences the unknown append (I4, I5).
 */
import type { Clock, Digest } from './clock.ts'
import type { GroupCommit } from './commits.ts'
import { Crowd } from './crowd.ts'
import { HoldfastError, asHoldfastError } from './errors.ts'
import { isIgnorable } from './event-table.ts'
import {
  decide,
  evolve,
  expiresAt,
  isPending,
  type Command,
  type Draft,
  type Session,
  type SessionEvent,
} from './session.ts'
import type { Limits } from './limits.ts'
import { admittedKeys } from './request-keys.ts'
import { snapshotOf } from './snapshots.ts'
import type { Append } from './store.ts'

/** What stands behind a ledger and does what its events say. */
export interface LedgerOwner {
  /** All that waited is decided: more may be decided in the same step. */
  decideMore(batch: Batch): void
  /** The event is durable. Called in log order. */
  act(event: SessionEvent, json: string): void
  /** All events of a step have been acted on, and their callers told. */
  settled(): void
  lost(error: HoldfastError): void
}

/** Commands decided together, to be appended together. */
export class Batch {
  readonly events: SessionEvent[] = []
  readonly bodies: string[] = []
  session: Session
  /** The time of its events. */
  readonly at: number
  readonly #crowd = new Crowd()
  readonly #durable: (() => void)[] = []
  readonly #failed: ((error: HoldfastError) => void)[] = []

  constructor(session: Session, at: number) {
    this.session = session
    this.at = at
  }

  /**
   * Decides one more command on top of those before it, or throws its refusal. Whole or not at all:
   * a runner may hand over what cannot be written as JSON.
   */
  decide(command: Command): readonly SessionEvent[] {
    const { seq } = this.session
    const events = decide(this.session, this.#timed(command)).map((draft, index) =>
      place(draft, seq + 1 + index, this.at),
    )
    const bodies = events.map((event) => JSON.stringify(event))
    for (const event of events) this.session = evolve(this.session, event, this.#crowd)
    this.events.push(...events)
    this.bodies.push(...bodies)
    return events
  }

  /** Grace times are counted from the time of the event that begins them. */
  #timed(command: Command): Command {
    if (command.type !== 'recover' && command.type !== 'lose') return command
    return { ...command, at: Math.max(command.at, this.at) }
  }

  /** Exactly one of the two is called, once it is known whether the batch is in the log. */
  whenKnown(durable: () => void, failed: (error: HoldfastError) => void): void {
    this.#durable.push(durable)
    this.#failed.push(failed)
  }

  tellDurable(): void {
    for (const tell of this.#durable) tell()
  }

  tellFailed(error: HoldfastError): void {
    for (const tell of this.#failed) tell(error)
  }
}

type Envelope = {
  /** Or how to make it once those before it are decided. */
  readonly command: Command | (() => Command)
  readonly settle: (events: readonly SessionEvent[]) => void
  readonly refuse: (error: unknown) => void
  /**
   * Told as soon as it is decided, before it is durable: for the owner's own books only. Who keeps
   * the session keeps one for each command of a crowd.
   */
  readonly decided: (events: readonly SessionEvent[], session: Session) => void
}

export type LedgerTools = {
  readonly commits: GroupCommit
  readonly clock: Clock
  readonly limits: Limits
  readonly digest: Digest
}

export class Ledger {
  readonly epoch: number
  readonly #owner: LedgerOwner
  readonly #commits: GroupCommit
  readonly #clock: Clock
  readonly #limits: Limits
  readonly #digest: Digest
  #session: Session
  #snapshotSeq: number
  /** Characters of the last snapshot, if it was made here, and of the events since. */
  #snapshotChars = 0
  #tailChars = 0
  #mailbox: Envelope[] = []
  #committing: Batch | null = null
  #lost: HoldfastError | null = null

  constructor(
    owner: LedgerOwner,
    { session, epoch, snapshotSeq }: { session: Session; epoch: number; snapshotSeq: number },
    { commits, clock, limits, digest }: LedgerTools,
  ) {
    this.epoch = epoch
    this.#owner = owner
    this.#commits = commits
    this.#clock = clock
    this.#digest = digest
    this.#limits = limits
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
    return Math.max(this.#clock.now(), this.ahead.updatedAt)
  }

  post(command: Envelope['command']): Promise<readonly SessionEvent[]> {
    return new Promise((settle, refuse) => this.send(command, settle, refuse))
  }

  /** Like `post`, but the callbacks run in the very step in which the events are acted on. */
  send(
    command: Envelope['command'],
    settle: Envelope['settle'],
    refuse: Envelope['refuse'],
    decided: Envelope['decided'] = () => undefined,
  ): void {
    if (this.#lost !== null) return refuse(this.#lost)
    this.#mailbox.push({ command, settle, refuse, decided })
    this.pump()
  }

  /** Decides what waits, unless the last step is not known to be durable yet. */
  pump(): void {
    if (this.#committing !== null || this.#lost !== null) return
    const batch = new Batch(this.#session, this.now())
    this.#committing = batch
    for (const envelope of this.#mailbox.splice(0)) decideOne(batch, envelope)
    try {
      this.#owner.decideMore(batch)
    } catch (error) {
      return this.lose(asHoldfastError(error))
    }
    if (batch.events.length > 0) return void this.#append(batch)
    this.#committing = null
    batch.tellDurable()
  }

  async #append(batch: Batch): Promise<void> {
    try {
      const outcome = await this.#commits.append(this.#appendOf(batch))
      if (outcome === 'appended') return this.#committed(batch)
      this.lose(new HoldfastError('stale_epoch', `session ${this.#session.id} has moved on`))
    } catch (error) {
      this.lose(asHoldfastError(error))
    }
  }

  /** Gives the ledger up; what was not known to be durable is refused with `error`. */
  lose(error: HoldfastError): void {
    if (this.#lost !== null) return
    this.#lost = error
    this.#committing?.tellFailed(error)
    this.#committing = null
    for (const { refuse } of this.#mailbox.splice(0)) refuse(error)
    this.#owner.lost(error)
  }

  #appendOf({ session, events, bodies }: Batch): Append {
    const isDue = this.#snapshotDue(session.seq, bodies)
    const snapshot = isDue ? snapshotOf(session, this.#digest) : null
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
      ...this.#keysOf(session, events),
    }
  }

  #keysOf({ updatedAt }: Session, events: readonly SessionEvent[]): Pick<Append, 'keys'> {
    const added = events.flatMap(admittedKeys)
    if (added.length === 0) return {}
    const { idempotencyMs, idempotencyKeysMax } = this.#limits
    const since = updatedAt - idempotencyMs
    return { keys: { added, since, max: idempotencyKeysMax } }
  }

  #snapshotDue(seq: number, bodies: readonly string[]): boolean {
    const { snapshotEvery, snapshotChars } = this.#limits
    for (const { length } of bodies) this.#tailChars += length
    // One that many hold is large: it is not written again for less than its own length of events.
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
    batch.events.forEach((event, index) => this.#owner.act(event, batch.bodies[index] ?? ''))
    batch.tellDurable()
    this.#committing = null
    this.#owner.settled()
    this.pump()
  }
}

/** Gives a draft its place in the log. `decide` made it for this alone, so no copy is taken. */
function place(draft: Draft, seq: number, at: number): SessionEvent {
  const event = draft as Draft & { seq: number; at: number }
  event.seq = seq
  event.at = at
  if (isIgnorable(event.type)) (event as { ignorable?: true }).ignorable = true
  return event
}

function decideOne(batch: Batch, { command, settle, refuse, decided }: Envelope): void {
  try {
    const events = batch.decide(typeof command === 'function' ? command() : command)
    decided(events, batch.session)
    batch.whenKnown(() => settle(events), refuse)
  } catch (refusal) {
    decided([], batch.session)
    batch.whenKnown(() => refuse(refusal), refuse)
  }
}
