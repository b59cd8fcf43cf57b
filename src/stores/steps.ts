/**
 * A schema is made by numbered steps that only go forward. The checksum of each applied step is
 * stored, and a schema whose steps differ from ours is refused.
 */
import { createHash } from 'node:crypto'
import { HoldfastError } from '../core/errors.ts'
import { unavailable } from './failures.ts'

export type SchemaStep = { readonly checksum: string; readonly sql: string }

export function schemaStep(sql: string): SchemaStep {
  return { checksum: createHash('sha256').update(sql).digest('hex'), sql }
}

/** Throws unless the steps that were applied to `store` are the first of ours. */
export function checkSteps(
  applied: readonly string[],
  steps: readonly SchemaStep[],
  store: string,
): void {
  if (applied.length > steps.length) {
    throw new HoldfastError(
      'store_newer',
      `${store} was written by a newer Holdfast (schema ${applied.length}, ` +
        `this one knows ${steps.length}): update Holdfast`,
    )
  }
  const changed = applied.findIndex((checksum, index) => checksum !== steps[index]!.checksum)
  if (changed === -1) return
  throw unavailable(
    `${store} has another schema than this Holdfast makes (step ${changed + 1} differs): ` +
      'use the Holdfast that wrote it',
  )
}
