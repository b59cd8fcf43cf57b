/** For every test file: it fails if it leaves something behind. */
import { afterAll } from 'vitest'
import { LeakCheck } from './leaks.ts'

/** How long what has been ended may take to be gone, on a busy machine. */
const PATIENCE_MS = 10_000

const check = new LeakCheck()

/** Registered first, so that it runs last: after the clean-up of the file. */
afterAll(async () => {
  await closeFetch()
  const leaks = await check.end(PATIENCE_MS)
  if (leaks.length > 0) throw new Error(`left behind:\n${leaks.join('\n')}`)
})

/** `fetch` keeps a connection whose answer was not read to its end, also when the server is gone. */
async function closeFetch(): Promise<void> {
  const agent: unknown = Reflect.get(globalThis, Symbol.for('undici.globalDispatcher.1'))
  await (agent as { destroy(): Promise<void> } | undefined)?.destroy()
}
