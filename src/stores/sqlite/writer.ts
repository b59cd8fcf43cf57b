/**
 * Group commit: all writes that wait share one transaction and one sync, and all are answered
 * after it.
 *
 * An operation that fails by its own fault is found by running each of the group in a transaction
 * of its own, so that the others succeed. A full disk refuses the group's writes and nothing
 * more. After a failed sync or on a damaged file everything is refused for good (see
 * `failures.ts`).
 */
import type { SqliteStatement } from './driver.ts'
import type { HoldfastError } from '../../core/errors.ts'
import type { OpenFile } from './database.ts'
import { errorAfterCommit, isForGood, storeError } from './failures.ts'
import { Leases } from '../leases.ts'
import { Listing } from './listing.ts'
import type { WriterAnswers, WriterOperation, ReadOperation, WriteOperation } from './operations.ts'
import { Statements } from './statements.ts'

/**
 * The WAL is copied into the file when it holds this many pages: small, so that opening stays
 * fast.
 */
const CHECKPOINT_PAGES = 1_000

/** A write that needs room and leaves nothing behind. */
const PROBE = 'BEGIN IMMEDIATE; CREATE TABLE probe (x); DROP TABLE probe; COMMIT'

/** How often a store that is only read looks whether its files are still there. */
const PATHS_CHECK_MS = 100

type Placed<Kind> = { readonly position: number; readonly operation: Kind }

export class Writer {
  readonly #open: OpenFile
  readonly #leases = new Leases()
  readonly #statements: Statements
  readonly #listing: Listing
  readonly #walSize: SqliteStatement
  readonly #checkpoint: SqliteStatement
  #failure: HoldfastError | null = null
  /** The last write found no room. */
  #isFull = false
  #checkedAt = performance.now()

  constructor(open: OpenFile) {
    this.#open = open
    this.#statements = new Statements(open.database, this.#leases)
    this.#listing = new Listing(open.database, this.#leases)
    this.#walSize = open.database.prepare('PRAGMA wal_checkpoint(NOOP)')
    this.#checkpoint = open.database.prepare('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** Carries out the operations and answers each, in order. Reads see every write of the group. */
  run(operations: readonly WriterOperation[]): WriterAnswers {
    const answers: WriterAnswers = { values: Array.from(operations, () => null), failures: [] }
    const writes: Placed<WriteOperation>[] = []
    const reads: Placed<ReadOperation>[] = []
    for (const [position, operation] of operations.entries()) {
      if (operation[0] === 'open' || operation[0] === 'close') continue
      if (isRead(operation)) reads.push({ position, operation })
      else writes.push({ position, operation })
    }
    if (writes.length > 0) this.#write(writes, answers)
    else this.#checkPathsNowAndThen()
    for (const read of reads) this.#read(read, answers)
    return answers
  }

  #write(writes: readonly Placed<WriteOperation>[], answers: WriterAnswers): void {
    const failure = this.#failure ?? this.#transact(writes, answers)
    if (failure === null) return
    if (failure.code === 'internal' && writes.length > 1) {
      for (const write of writes) this.#write([write], answers)
      return
    }
    for (const { position } of writes) refuse(answers, position, failure)
  }

  #transact(
    writes: readonly Placed<WriteOperation>[],
    answers: WriterAnswers,
  ): HoldfastError | null {
    try {
      this.#statements.begin()
      for (const { position, operation } of writes) {
        answers.values[position] = this.#execute(operation)
      }
      this.#statements.commit()
    } catch (thrown) {
      return this.#rollBack(thrown)
    }
    return this.#confirm()
  }

  /** What fails here fails after the commit: it is for good, and nothing is run a second time. */
  #confirm(): HoldfastError | null {
    try {
      // I4: what was written to a deleted or replaced file is not acknowledged.
      this.#open.paths.check()
      this.#open.marker.note()
      this.#isFull = false
      return null
    } catch (thrown) {
      return this.#judge(errorAfterCommit(thrown))
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

  #read({ position, operation }: Placed<ReadOperation>, answers: WriterAnswers): void {
    if (this.#failure !== null) return refuse(answers, position, this.#failure)
    try {
      answers.values[position] = this.#find(operation)
    } catch (thrown) {
      refuse(answers, position, this.#judge(thrown))
    }
  }

  #find(operation: ReadOperation): unknown {
    switch (operation[0]) {
      case 'list':
        return this.#listing.list(operation[1])
      case 'read':
        return this.#statements.read(operation[1], operation[2], operation[3])
      case 'findKeys':
        return this.#statements.findKeys(operation[1], operation[2])
      case 'changes':
        return this.#statements.changes(operation[1], operation[2])
      case 'ready':
        return this.#checkRoom()
    }
  }

  /** Throws `store_full` if the system reports no room, or the last write found none. */
  #checkRoom(): void {
    this.#open.checkRoom()
    if (!this.#isFull) return
    try {
      this.#open.database.exec(PROBE)
      this.#isFull = false
    } finally {
      this.#statements.rollBack()
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
    // Clients see it too: no path.
    const error = storeError(thrown, 'the store')
    if (isForGood(error)) this.#failure ??= error
    if (error.code === 'store_full') this.#isFull = true
    return error
  }

  /** Of a store that is only read, or only asked whether it is ready. */
  #checkPathsNowAndThen(): void {
    if (this.#failure !== null || performance.now() - this.#checkedAt < PATHS_CHECK_MS) return
    this.#checkedAt = performance.now()
    try {
      this.#open.paths.check()
    } catch (thrown) {
      this.#judge(thrown)
    }
  }

  /** Between two groups, after the answers were posted. */
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
    this.#open.close(this.#failure === null)
  }
}

const READS: readonly string[] = [
  'read',
  'list',
  'ready',
  'findKeys',
  'changes',
] satisfies readonly ReadOperation[0][]

function isRead(operation: WriterOperation): operation is ReadOperation {
  return READS.includes(operation[0])
}

function refuse(answers: WriterAnswers, position: number, error: HoldfastError): void {
  answers.values[position] = null
  answers.failures.push([position, error.code, error.message, error.details])
}
