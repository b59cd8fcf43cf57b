/**
 * What crosses between the caller's thread and the writer's. Operations are answered in the order
 * in which they were posted, so no message carries an id.
 */
import type { HoldfastError } from '../../core/errors.ts'
import type { Store } from '../../core/store.ts'

/** The methods of a store that write nothing. */
export const READS = ['read', 'list', 'findKeys', 'changes', 'ready'] as const
type Write = 'reserve' | 'claim' | 'release' | 'append' | 'beat' | 'erase'
type OperationName = Write | (typeof READS)[number]

type Given = { readonly [Name in OperationName]: Parameters<Required<Store>[Name]> }

/** A call of a method of the store. */
export type StoreOperation<Name extends OperationName = OperationName> = {
  [One in Name]: readonly [name: One, given: Given[One]]
}[Name]

type OperationValue<Name extends OperationName> = Awaited<ReturnType<Required<Store>[Name]>>

/** What carries the operations out. `append` returns the positions of those that are stale. */
export type Steps = {
  readonly [Name in OperationName]: (
    ...given: Given[Name]
  ) => Name extends 'append' ? readonly number[] : OperationValue<Name>
}

export type WriterOperation = StoreOperation | readonly [name: 'close', given: []]

/**
 * One value per operation, in order; the positions in `failures` have none. The first answer comes
 * unasked, when the file is open or could not be opened.
 */
export type WriterAnswers = {
  readonly values: unknown[]
  readonly failures: [position: number, ...ConstructorParameters<typeof HoldfastError>][]
}

/** What the writer's thread is started with. */
export type WriterOptions = {
  readonly file: string
  /** The file may not grow past this many pages: a quota, and how a full disk is tried out. */
  readonly pagesMax?: number
}
