/**
 * Group commit: all writes that wait share one transaction and one sync, and all are answered
 * after it.
 *
 * An operation that fails by its own fault is found by running each of the group in a transaction
 * of its own, so that it harms nobody else. A full disk refuses the group's writes and nothing
 * more. After a failed sync or on a damaged file everything is refused for good (see
 * `failures.ts`).
 */
import type { StatementSyncInstance } from '@photostructure/sqlite'
import type { HoldfastError } from '../../core/errors.ts'
import type { OpenFile } from './database.ts'
import { isForGood, storeError } from './failures.ts'
import { Leases } from './leases.ts'
import { Listing } from './listing.ts'
import type { Answers, Operation, ReadOperation, WriteOperation } from './operations.ts'
import { Statements } from './statements.ts'

/**
 * The WAL is copied into the file when it holds this many pages: small, so that opening stays
 * fast.
 */
const CHECKPOINT_PAGES = 1_000

type Placed<Kind> = { readonly position: number; readonly operation: Kind }

export class Writer {
  readonly #open: OpenFile
  readonly #leases = new Leases()
  readonly #statements: Statements
  readonly #listing: Listing
  readonly #walSize: StatementSyncInstance
  readonly #checkpoint: StatementSyncInstance
  #failure: HoldfastError | null = null

  constructor(open: OpenFile) {
    this.#open = open
    this.#statements = new Statements(open.database, this.#leases)
    this.#listing = new Listing(open.database, this.#leases)
    this.#walSize = open.database.prepare('PRAGMA wal_checkpoint(NOOP)')
    this.#checkpoint = open.database.prepare('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** Carries out the operations and answers each, in order. Reads see every write of the group. */
  run(operations: readonly Operation[]): Answers {
    const answers: Answers = { values: Array.from(operations, () => null), failures: [] }
    const writes: Placed<WriteOperation>[] = []
    const reads: Placed<ReadOperation>[] = []
    for (const [position, operation] of operations.entries()) {
      if (operation[0] === 'open' || operation[0] === 'close') continue
      if (isRead(operation)) reads.push({ position, operation })
      else writes.push({ position, operation })
    }
    if (writes.length > 0) this.#write(writes, answers)
    for (const read of reads) this.#read(read, answers)
    return answers
  }

  #write(writes: readonly Placed<WriteOperation>[], answers: Answers): void {
    const failure = this.#failure ?? this.#transact(writes, answers)
    if (failure === null) return
    if (failure.code === 'internal' && writes.length > 1) {
      for (const write of writes) this.#write([write], answers)
      return
    }
    for (const { position } of writes) refuse(answers, position, failure)
  }

  #transact(writes: readonly Placed<WriteOperation>[], answers: Answers): HoldfastError | null {
    try {
      this.#statements.begin()
      for (const { position, operation } of writes) {
        answers.values[position] = this.#execute(operation)
      }
      this.#statements.commit()
      return null
    } catch (thrown) {
      return this.#rollBack(thrown)
    }
  }

  #execute(operation: WriteOperation): unknown {
    switch (operation[0]) {
      case 'append':
        return this.#statements.append(operation[1])
      case 'reserve':
        return this.#statements.reserve(operation[1])
      case 'claim':
        return this.#statements.claim(operation[1], operation[2])
      case 'release':
        return this.#statements.release(operation[1], operation[2])
      case 'erase':
        return this.#statements.erase(operation[1])
      case 'beat':
        return this.#leases.beat(operation[1], operation[2])
    }
  }

  #read({ position, operation }: Placed<ReadOperation>, answers: Answers): void {
    if (this.#failure !== null) return refuse(answers, position, this.#failure)
    try {
      answers.values[position] =
        operation[0] === 'list'
          ? this.#listing.list(operation[1])
          : this.#statements.read(operation[1], operation[2], operation[3])
    } catch (thrown) {
      refuse(answers, position, this.#judge(thrown))
    }
  }

  #rollBack(thrown: unknown): HoldfastError {
    const error = this.#judge(thrown)
    try {
      this.#statements.rollBack()
      return error
    } catch (worse) {
      return this.#judge(worse)
    }
  }

  /** What is for good is remembered. */
  #judge(thrown: unknown): HoldfastError {
    const error = storeError(thrown, this.#open.file)
    if (isForGood(error)) this.#failure ??= error
    return error
  }

  /** Between two groups, so that nobody waits for it who was already answered. */
  checkpoint(): void {
    if (this.#failure !== null) return
    try {
      const { log, checkpointed } = this.#walSize.get()
      if (log - checkpointed >= CHECKPOINT_PAGES) this.#checkpoint.get()
    } catch (thrown) {
      // A full disk or a reader in the way: the WAL waits. Anything worse is remembered.
      this.#judge(thrown)
    }
  }

  close(): void {
    this.#open.close()
  }
}

function isRead(operation: Operation): operation is ReadOperation {
  return operation[0] === 'read' || operation[0] === 'list'
}

function refuse(answers: Answers, position: number, error: HoldfastError): void {
  answers.values[position] = null
  answers.failures.push([position, error.code, error.message, error.details])
}
