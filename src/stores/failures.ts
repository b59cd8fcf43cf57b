/** Refusals that all stores have alike. */
import { HoldfastError } from '../core/errors.ts'

export function unavailable(message: string): HoldfastError {
  return new HoldfastError('store_unavailable', message)
}

export function closedError(): HoldfastError {
  return unavailable('the store is closed')
}
