/** Waits that a signal ends. */
import { setTimeout as sleep } from 'node:timers/promises'

/** Calls `run` when the signal aborts, at once if it has. Returns a function that prevents that. */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  if (signal.aborted) run()
  else signal.addEventListener('abort', run, { once: true })
  return () => signal.removeEventListener('abort', run)
}

/** The result of the work, or a rejection when the signal aborts; the work itself continues. */
export function unlessAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const ignore = onAbort(signal, () => reject(signal.reason as Error))
    work.finally(ignore).then(resolve, reject)
  })
}

/** Resolves after `ms`, or rejects with the signal's reason when it is aborted. */
export async function wait(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted())
}
