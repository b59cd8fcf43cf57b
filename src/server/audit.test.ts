import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { AuditRecord } from '../core/index.ts'
import { Audit } from './audit.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

it('writes what came during a slow write, without another record to remind it', async () => {
  const writes: (readonly AuditRecord[])[] = []
  let finish = (): void => undefined
  const addAudit = (records: readonly AuditRecord[]): Promise<void> => {
    writes.push(records)
    return new Promise((resolve) => (finish = resolve))
  }
  const clock = { now: () => 0, monotonic: () => 0 }
  const node = { node: 'n', limits: {}, clock, store: { addAudit } }
  const audit = new Audit(node as never)
  const take = (address: string): void =>
    audit.take({ code: 'link_used', level: 'debug', message: '', facts: { address } })
  take('one')
  await vi.advanceTimersByTimeAsync(1_000)
  take('two')
  await vi.advanceTimersByTimeAsync(5_000)
  expect(writes.flat().map(({ address }) => address)).toEqual(['one'])
  finish()
  await vi.advanceTimersByTimeAsync(1_000)
  expect(writes.flat().map(({ address }) => address)).toEqual(['one', 'two'])
  finish()
  await audit.close()
})
