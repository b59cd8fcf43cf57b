/**
 * What a log must be, and what a store or a runner of your own must pass, in any test framework:
 * the contracts of `Store` and `Runner`, one claim per case. Each case opens a store or a runner of
 * its own, and closes it whatever happens.
 */
import type { Store } from '../core/store.ts'
import { appendClaims } from './store/append.ts'
import { askClaims } from './store/asks.ts'
import { blobClaims } from './store/blobs.ts'
import { claimClaims } from './store/claim.ts'
import { countClaims } from './store/counts.ts'
import { filterClaims } from './store/filters.ts'
import { listClaims } from './store/list.ts'
import { principalClaims } from './store/principals.ts'
import { reserveClaims } from './store/reserve.ts'
import { spendingClaims } from './store/spending.ts'
import { webhookClaims } from './store/webhooks.ts'
import { restoreClaims } from './store/restore.ts'
import { StoreTrial } from './store/samples.ts'

export { runnerConformance, type RunnerCase, type RunnerUnderTest } from './runner.ts'
export { checkLog, type CheckedEvent, type LogRules, type LogViolation } from '../core/log-check.ts'

export type StoreUnderTest = {
  readonly store: Store
  /** Removes what the store leaves behind; called after it was closed. */
  readonly dispose?: () => Promise<void>
}

export type StoreCase = { readonly title: string; readonly run: () => Promise<void> }

/** Every case, for a store that `open` makes anew and empty each time. */
export function storeConformance(open: () => Promise<StoreUnderTest>): readonly StoreCase[] {
  const claims = {
    ...reserveClaims,
    ...claimClaims,
    ...appendClaims,
    ...listClaims,
    ...filterClaims,
    ...askClaims,
    ...principalClaims,
    ...countClaims,
    ...blobClaims,
    ...spendingClaims,
    ...webhookClaims,
    ...restoreClaims,
  }
  return Object.entries(claims).map(([title, check]) => {
    const run = async (): Promise<void> => {
      const { store, dispose } = await open()
      try {
        await check(new StoreTrial(store), store)
      } finally {
        await store.close()
        await dispose?.()
      }
    }
    return { title, run }
  })
}
