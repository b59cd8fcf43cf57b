/**
 * The contract of `Store`, one claim per case. Each case opens a store of its own, closes it
 * whatever happens, and knows nothing of the test runner.
 */
import type { Store } from '../../core/store.ts'
import { appendClaims } from './append.ts'
import { changeClaims } from './changes.ts'
import { claimClaims } from './claim.ts'
import { keyClaims } from './keys.ts'
import { lifeClaims } from './life.ts'
import { listClaims } from './list.ts'
import { reserveClaims } from './reserve.ts'
import { Trial, type Claims } from './samples.ts'

export type StoreUnderTest = {
  readonly store: Store
  /** Removes what the store leaves behind; called after it was closed. */
  readonly dispose?: () => Promise<void>
}

export type StoreCase = { readonly title: string; readonly run: () => Promise<void> }

/** Every case, for a store that `open` makes anew and empty each time. */
export function storeConformance(open: () => Promise<StoreUnderTest>): readonly StoreCase[] {
  const claims: Claims = {
    ...reserveClaims,
    ...claimClaims,
    ...appendClaims,
    ...listClaims,
    ...changeClaims,
    ...keyClaims,
    ...lifeClaims,
  }
  return Object.entries(claims).map(([title, check]) => ({
    title,
    run: () => runCase(open, check),
  }))
}

async function runCase(open: () => Promise<StoreUnderTest>, check: Claims[string]): Promise<void> {
  const { store, dispose } = await open()
  try {
    await check(new Trial(store), store)
  } finally {
    await store.close()
    await dispose?.()
  }
}
