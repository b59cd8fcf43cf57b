/**
 * The embedded default: one SQLite file, written by a thread of its own so that a slow disk never
 * holds up the caller's event loop.
 *
 * I4 an append is answered after it was synced. Whatever is under way when the thread ends is
 * rejected: no promise of this store stays open.
 */
import { Worker } from 'node:worker_threads'
import { HoldfastError } from '../../core/errors.ts'
import type { AppendOutcome, AuditRecord, Store } from '../../core/store.ts'
import { closedError } from '../failures.ts'
import type { WriterOptions } from './database.ts'
import type { Migration } from './migrations.ts'
import type { WriterAnswers, WriterOperation } from './worker.ts'

export { backupSqlite, type BackupOptions } from './backup.ts'

export type SqliteStoreOptions = WriterOptions & {
  /** Called before a file of an older version is copied to `backup` and brought up to date. */
  readonly onMigration?: (migration: Migration) => void
}

/** Opens the file, or creates it. One process has it at a time: a second gets `store_locked`. */
export async function openSqliteStore({
  onMigration = () => undefined,
  ...options
}: SqliteStoreOptions): Promise<Store> {
  const worker = new Worker(new URL('./worker.js', import.meta.url), {
    name: 'holdfast-sqlite',
    workerData: options,
    // The caller's own flags (`--eval`, loaders) are not for this thread.
    execArgv: [],
    // What it handles lives for one group: a small nursery is as fast and keeps memory down.
    resourceLimits: { maxYoungGenerationSizeMb: 8 },
  })
  const store = new SqliteStore(worker, onMigration)
  await store.opened
  return store
}

/** Pages and blobs under way: both threads have them in memory. */
const PAGES_MAX = 16

type Waiting = {
  readonly resolve: (value: unknown) => void
  readonly reject: (error: HoldfastError) => void
}

type PendingOperation = Waiting & { readonly operation: WriterOperation }

class SqliteStore implements Store {
  /** Settles when the file is open, or could not be opened. */
  readonly opened: Promise<unknown>
  readonly #worker: Worker
  /** What was posted and waits for its answer, in order. */
  readonly #waiting: Waiting[] = []
  readonly #outbox: PendingOperation[] = []
  /** Pages that were asked for and are not here, and reads that wait for their turn. */
  #pages = 0
  readonly #readers: (() => void)[] = []
  #ended: HoldfastError | null = null
  #closing: Promise<void> | null = null

  constructor(worker: Worker, onMigration: (migration: Migration) => void) {
    this.#worker = worker
    this.opened = new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
    worker.on('message', (said: WriterAnswers | { readonly migration: Migration }) => {
      if ('migration' in said) onMigration(said.migration)
      else this.#settle(said)
    })
    worker.on('error', (error) => this.#end(`the SQLite thread failed: ${error.message}`))
    worker.on('exit', () => this.#end('the SQLite thread has ended'))
  }

  readonly reserve: Store['reserve'] = (...given) => this.#ask(['reserve', given])
  readonly claim: Store['claim'] = (...given) => this.#ask(['claim', given])
  readonly release: Store['release'] = (...given) => this.#ask(['release', given])
  readonly findKeys: Store['findKeys'] = (...given) => this.#ask(['findKeys', given])
  readonly list: Store['list'] = (...given) => this.#ask(['list', given])
  readonly listAsks: Store['listAsks'] = (...given) => this.#ask(['listAsks', given])
  readonly beat: Store['beat'] = (...given) => this.#ask(['beat', given])
  readonly erase: Store['erase'] = (...given) => this.#ask(['erase', given])
  readonly restore: Required<Store>['restore'] = (...given) => this.#ask(['restore', given])
  readonly changes: Store['changes'] = (...given) => this.#ask(['changes', given])
  readonly addAudit = (records: readonly AuditRecord[]): Promise<void> =>
    this.#ask(['addAudit', [records]])
  readonly readAudit: Required<Store>['readAudit'] = (...given) => this.#ask(['readAudit', given])
  readonly lastAudit: Required<Store>['lastAudit'] = (...given) => this.#ask(['lastAudit', given])
  readonly pruneAudit: Required<Store>['pruneAudit'] = (...given) =>
    this.#ask(['pruneAudit', given])
  readonly holdWebhook: Required<Store>['holdWebhook'] = (...given) =>
    this.#ask(['holdWebhook', given])
  readonly saveWebhook: Required<Store>['saveWebhook'] = (...given) =>
    this.#ask(['saveWebhook', given])
  readonly listWebhooks: Required<Store>['listWebhooks'] = () => this.#ask(['listWebhooks', []])
  readonly spend: Required<Store>['spend'] = (...given) => this.#ask(['spend', given])
  readonly usage: Store['usage'] = (...given) => this.#ask(['usage', given])
  readonly ready = (): Promise<void> => this.#ask(['ready', []])

  readonly append: Store['append'] = async (appends) => {
    const stale = await this.#ask<readonly number[]>(['append', [appends]])
    const outcomes = appends.map((): AppendOutcome => 'appended')
    for (const index of stale) outcomes[index] = 'stale'
    return outcomes
  }

  readonly putBlobs: Store['putBlobs'] = (...given) => this.#ask(['putBlobs', given])
  readonly dropBlobs: Store['dropBlobs'] = (...given) => this.#ask(['dropBlobs', given])
  readonly readBlob: Store['readBlob'] = (...given) => this.#askForPage(['readBlob', given])

  readonly read: Store['read'] = (...given) => {
    const [, , limit] = given
    const operation: WriterOperation = ['read', given]
    return limit === 0 ? this.#ask(operation) : this.#askForPage(operation)
  }

  async #askForPage<Answer>(operation: WriterOperation): Promise<Answer> {
    if (this.#pages >= PAGES_MAX) await new Promise<void>((next) => this.#readers.push(next))
    else this.#pages += 1
    try {
      return await this.#ask(operation)
    } finally {
      // The next one has its place at once, or another could take it meanwhile.
      const next = this.#readers.shift()
      if (next === undefined) this.#pages -= 1
      else next()
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    if (this.#ended !== null) return
    const exited = new Promise((resolve) => this.#worker.once('exit', resolve))
    const closed = this.#ask(['close', []])
    this.#ended = closedError()
    await closed
    await exited
  }

  #ask<Answer>(operation: WriterOperation): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      if (this.#ended !== null) return reject(this.#ended)
      const asked = { operation, resolve: resolve as Waiting['resolve'], reject }
      // After the microtasks: everything that this turn of the loop asks for travels together.
      if (this.#outbox.push(asked) === 1) process.nextTick(() => this.#post(this.#outbox.splice(0)))
    })
  }

  /** What cannot be copied to the other thread is refused by itself, and the rest still goes. */
  #post(asked: readonly PendingOperation[]): void {
    try {
      const operations = asked.map(({ operation }) => operation)
      this.#worker.postMessage(operations, [])
      for (const one of asked) this.#waiting.push(one)
    } catch (thrown) {
      if (asked.length > 1) for (const one of asked) this.#post([one])
      else asked[0]?.reject(new HoldfastError('internal', String(thrown)))
    }
  }

  #settle({ values, failures }: WriterAnswers): void {
    const answered = this.#waiting.splice(0, values.length)
    for (const [position, ...error] of failures) {
      answered[position]?.reject(new HoldfastError(...error))
    }
    for (const [position, asked] of answered.entries()) asked.resolve(values[position])
  }

  #end(reason: string): void {
    this.#ended ??= new HoldfastError('store_failed', reason)
    const left = [...this.#waiting.splice(0), ...this.#outbox.splice(0)]
    for (const asked of left) asked.reject(this.#ended)
  }
}
