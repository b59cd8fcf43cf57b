import { expect, it } from 'vitest'
import { BROWSER_LIMITS } from '../../browsers/index.ts'
import { BrowserHost } from './host.ts'
import { CDP_LIMITS } from './limits.ts'

const SILENT = { send: () => undefined, close: () => Promise.resolve() }

/** A clock that only notes for how long it was asked to wait. */
class NotingClock {
  readonly waits: { readonly ms: number; readonly run: () => void }[] = []

  now(): number {
    return 0
  }

  monotonic(): number {
    return 0
  }

  after(ms: number, run: () => void): () => void {
    this.waits.push({ ms, run })
    return () => undefined
  }
}

it.each([
  ['has read everything', 0, BROWSER_LIMITS.healthAnswerMs],
  ['has 20 MB to read', 20_480_000, BROWSER_LIMITS.healthAnswerMs + 10_000],
])('a browser that %s has its time for a sign of life', (_, bytes, ms) => {
  const clock = new NotingClock()
  const facts = { name: 'chromium', isOwn: false, startedAt: 0, clock }
  const host = new BrowserHost(SILENT, facts, CDP_LIMITS)
  host.watch(BROWSER_LIMITS)
  if (bytes > 0) host.link.ask('A.b', { x: 'y'.repeat(bytes - 200) }, () => undefined)
  clock.waits.at(-1)?.run()
  expect(Math.round((clock.waits.at(-1)?.ms ?? 0) / 100)).toBe(ms / 100)
})
