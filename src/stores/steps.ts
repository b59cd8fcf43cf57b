/**
 * A schema is made by numbered steps that only go forward. The checksum of each applied step is
 * stored, and a schema whose steps differ from ours is refused.
 */
import { createHash } from 'node:crypto'
import { HoldfastError } from '../core/errors.ts'

/** Throws unless the steps that were applied to `store` are the first of ours. */
export function checkSteps(
  applied: readonly string[],
  steps: readonly string[],
  store: string,
): void {
  if (applied.length > steps.length) {
    throw new HoldfastError(
      'store_newer',
      `${store} was written by a newer Holdfast (schema ${applied.length}, ` +
        `this one knows ${steps.length}): update Holdfast`,
    )
  }
  const changed = applied.findIndex((checksum, index) => checksum !== checksumOf(steps[index]!))
  if (changed === -1) return
  throw new HoldfastError(
    'store_unavailable',
    `${store} has another schema than this Holdfast makes (step ${changed + 1} differs): ` +
      'use the Holdfast that wrote it',
  )
}

export function checksumOf(step: string): string {
  return createHash('sha256').update(step).digest('hex')
}
