/**
 * The writer's thread. Whenever it is idle it takes all operations that wait on its port, so that a
 * group is as large as the load makes it, without a timer.
 *
 * Group commit: all writes that wait share one transaction and one sync, and all are answered
 * after it. An operation that fails by its own fault is found by running each of the group in a
 * transaction of its own, so that the others succeed. A full disk refuses the group's writes and
 * nothing more. After a failed sync or on a damaged file everything is refused for good (see
 * `failures.ts`).
 */
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads'
import type { HoldfastError } from '../../core/errors.ts'
import type { ListQuery, Store } from '../../core/store.ts'
import { checkRoom, closeFile, openFile, type OpenFile, type WriterOptions } from './database.ts'
import type { SqliteStatement } from './driver.ts'
import { errorAfterCommit, isForGood, storeError } from './failures.ts'
import { Statements, type Steps } from './statements.ts'

type StoreOperation<Name extends keyof Steps = keyof Steps> = {
  [One in Name]: readonly [name: One, given: Parameters<Required<Store>[One]>]
}[Name]

/** Operations are answered in the order in which they were posted, so no message carries an id. */
export type WriterOperation = StoreOperation | readonly [name: 'close', given: []]

/**
 * One value per operation, in order; the positions in `failures` have none. The first answer comes
 * unasked, when the file is open or could not be opened.
 */
export type WriterAnswers = {
  readonly values: unknown[]
  readonly failures: [position: number, ...ConstructorParameters<typeof HoldfastError>][]
}

/** The operations that write nothing. */
const READS: ReadonlySet<string> = new Set([
  ...['read', 'list', 'listAsks', 'findKeys', 'changes', 'readAudit', 'lastAudit'],
  ...['usage', 'readBlob', 'ready', 'listWebhooks'],
])

/** Operations in one group. */
const OPERATIONS_MAX = 1_000

/** The WAL is copied into the file when it holds so many pages: few, so that opening stays fast. */
const CHECKPOINT_PAGES = 1_000

/** After an erasure, and between two steps of what is done then. */
const TIDY_MS = 1_000
/** Pages that one step gives back to the file system: so few that no turn waits for it. */
const TIDY_PAGES = 1_000

/** A write that needs room and leaves nothing behind. */
const PROBE = 'BEGIN IMMEDIATE; CREATE TABLE probe (x); DROP TABLE probe; COMMIT'

/** How often a store that is only read looks whether its files are still there. */
const PATHS_CHECK_MS = 100

type Placed = { readonly position: number; readonly operation: StoreOperation }

class Writer {
  readonly #open: OpenFile
  readonly #statements: Statements
  readonly #walSize: SqliteStatement
  readonly #checkpoint: SqliteStatement
  #failure: HoldfastError | null = null
  /** The last write found no room. */
  #isFull = false
  #checkedAt = performance.now()
  #tidying: NodeJS.Timeout | undefined

  constructor(open: OpenFile) {
    this.#open = open
    this.#statements = new Statements(open.database, () => this.#checkRoom())
    this.#walSize = open.database.prepare('PRAGMA wal_checkpoint(NOOP)')
    this.#checkpoint = open.database.prepare('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** Carries out the operations and answers each, in order. Reads see every write of the group. */
  run(operations: readonly WriterOperation[]): WriterAnswers {
    const answers: WriterAnswers = { values: Array.from(operations, () => null), failures: [] }
    const writes: Placed[] = []
    const reads: Placed[] = []
    for (const [position, operation] of operations.entries()) {
      if (operation[0] === 'close') continue
      const some = READS.has(operation[0]) ? reads : writes
      some.push({ position, operation })
    }
    if (writes.length > 0) this.#write(writes, answers)
    else this.#checkPathsNowAndThen()
    if (this.#statements.isLate(reads.some(isByActivity))) this.#catchUp()
    for (const read of reads) this.#read(read, answers)
    return answers
  }

  #write(writes: readonly Placed[], answers: WriterAnswers): void {
    const failure = this.#failure ?? this.#transact(writes, answers)
    if (failure === null) return
    if (failure.code === 'internal' && writes.length > 1) {
      for (const write of writes) this.#write([write], answers)
      return
    }
    for (const { position } of writes) refuse(answers, position, failure)
  }

  #transact(writes: readonly Placed[], answers: WriterAnswers): HoldfastError | null {
    try {
      this.#open.database.exec('BEGIN IMMEDIATE')
      for (const { position, operation } of writes) {
        answers.values[position] = this.#carryOut(operation)
      }
      this.#open.database.exec('COMMIT')
    } catch (thrown) {
      return this.#rollBack(thrown)
    }
    return this.#confirm()
  }

  /** Without room for it, a list is as late as it was. */
  #catchUp(): void {
    if (this.#failure !== null) return
    try {
      this.#open.database.exec('BEGIN IMMEDIATE')
      this.#statements.catchUp()
      this.#open.database.exec('COMMIT')
      this.#statements.caughtUp()
    } catch (thrown) {
      this.#rollBack(thrown)
    }
  }

  /** What fails here fails after the commit: it is for good, and nothing is run a second time. */
  #confirm(): HoldfastError | null {
    try {
      // I4: what was written to a deleted or replaced file is not acknowledged.
      this.#open.marker.checkPaths()
      this.#open.marker.note()
      this.#isFull = false
      return null
    } catch (thrown) {
      return this.#judge(errorAfterCommit(thrown))
    }
  }

  #read({ position, operation }: Placed, answers: WriterAnswers): void {
    if (this.#failure !== null) return refuse(answers, position, this.#failure)
    try {
      answers.values[position] = this.#carryOut(operation)
    } catch (thrown) {
      refuse(answers, position, this.#judge(thrown))
    }
  }

  #carryOut<Name extends keyof Steps>([name, given]: StoreOperation<Name>): unknown {
    const steps: Steps = this.#statements
    if (name === 'erase') this.#tidyLater()
    return steps[name](...given)
  }

  /** Throws `store_full` if the system reports no room, or the last write found none. */
  #checkRoom(): void {
    checkRoom(this.#open)
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
      this.#open.marker.checkPaths()
    } catch (thrown) {
      this.#judge(thrown)
    }
  }

  #tidyLater(): void {
    this.#tidying ??= setTimeout(() => this.#tidy(), TIDY_MS).unref()
  }

  /**
   * What was erased is still in the WAL, and its pages are free but part of the file. Both go, step
   * by step. A reader in the way is not waited for.
   */
  #tidy(): void {
    this.#tidying = undefined
    if (this.#failure !== null) return
    const { database } = this.#open
    try {
      database.exec(`PRAGMA busy_timeout = 0; PRAGMA incremental_vacuum(${TIDY_PAGES})`)
      const { busy } = database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()
      const { auto_vacuum: vacuum } = database.prepare('PRAGMA auto_vacuum').get()
      const { freelist_count: free } = database.prepare('PRAGMA freelist_count').get()
      if (busy !== 0 || (vacuum !== 0 && free > 0)) this.#tidyLater()
    } catch (thrown) {
      // As in `checkpoint`.
      this.#judge(thrown)
    } finally {
      database.exec('PRAGMA busy_timeout = 5000')
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
    clearTimeout(this.#tidying)
    closeFile(this.#open, this.#failure === null)
  }
}

function isByActivity({ operation: [name, [query]] }: Placed): boolean {
  return name === 'list' && (query as ListQuery).sort === 'activity'
}

function refuse(answers: WriterAnswers, position: number, error: HoldfastError): void {
  answers.values[position] = null
  answers.failures.push([position, error.code, error.message, error.details])
}

const options = workerData as WriterOptions
const port = parentPort as MessagePort

function start(): void {
  const answers: WriterAnswers = { values: [null], failures: [] }
  let open: OpenFile | undefined
  try {
    open = openFile(options, (migration) => port.postMessage({ migration }))
    serve(new Writer(open))
  } catch (thrown) {
    if (open !== undefined) closeFile(open, false)
    refuse(answers, 0, storeError(thrown, options.file))
  }
  port.postMessage(answers)
  if (answers.failures.length > 0) port.close()
}

function serve(writer: Writer): void {
  port.on('message', (first: WriterOperation[]) => {
    const operations = waiting(first)
    const answers = writer.run(operations)
    const isLast = operations.at(-1)?.[0] === 'close'
    try {
      if (isLast) writer.close()
    } catch (thrown) {
      refuse(answers, operations.length - 1, storeError(thrown, options.file))
    }
    port.postMessage(answers)
    if (isLast) port.close()
    else writer.checkpoint()
  })
}

function waiting(operations: WriterOperation[]): WriterOperation[] {
  while (operations.length < OPERATIONS_MAX) {
    const next: { message: WriterOperation[] } | undefined = receiveMessageOnPort(port)
    if (next === undefined) break
    for (const operation of next.message) operations.push(operation)
  }
  return operations
}

start()
