/**
 * A place in a list, as text. Every store lists by creation number, newest first, so that a page
 * never repeats or skips a session however many are made meanwhile.
 */
import { HoldfastError } from '../core/errors.ts'

const CURSOR = /^c[1-9a-z][0-9a-z]{0,10}$/

/** The cursor of the page that follows the session with this creation number. */
export function cursorAfter(number: number): string {
  return `c${number.toString(36)}`
}

/** The creation number that every session of the page is below. No cursor: all of them are. */
export function numberBelow(cursor: string | undefined): number {
  if (cursor === undefined) return Number.MAX_SAFE_INTEGER
  const number = CURSOR.test(cursor) ? Number.parseInt(cursor.slice(1), 36) : Number.NaN
  if (Number.isSafeInteger(number)) return number
  throw new HoldfastError('invalid_field', 'cursor is not one that a list gave out', {
    field: 'cursor',
  })
}
