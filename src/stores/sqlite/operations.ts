/**
 * What crosses between the caller's thread and the writer's. Operations are answered in the order
 * in which they were posted, so no message carries an id.
 */
import type { ErrorCode } from '../../core/errors.ts'
import type { Migration } from './migrations.ts'
import type { Append, KeyQuery, ListQuery, Reservation } from '../../core/store.ts'

export type WriteOperation =
  | readonly ['reserve', Reservation]
  | readonly ['claim', session: string, node: string]
  | readonly ['release', session: string, epoch: number]
  | readonly ['append', readonly Append[]]
  | readonly ['beat', node: string, leaseMs: number]
  | readonly ['erase', session: string]

export type ReadOperation =
  | readonly ['read', session: string, after: number, limit: number]
  | readonly ['list', ListQuery]
  | readonly ['ready']
  | readonly ['changes', after: number | null, limit: number]
  | readonly ['findKeys', session: string, KeyQuery]

/** `open` is never posted: the writer answers it when it has started. */
export type WriterOperation =
  | WriteOperation
  | ReadOperation
  | readonly ['open']
  | readonly ['close']

export type OperationFailure = readonly [
  position: number,
  code: ErrorCode,
  message: string,
  details: Readonly<Record<string, unknown>>,
]

/** One value per operation, in order; the positions in `failures` have none. */
export type WriterAnswers = { readonly values: unknown[]; readonly failures: OperationFailure[] }

/** Told before an older file is copied and changed. */
export type MigrationNotice = { readonly migration: Migration }

/** What the writer's thread is started with. */
export type WriterOptions = {
  readonly file: string
  /** The file may not grow past this many pages: a quota, and how a full disk is tried out. */
  readonly pagesMax?: number
}
