/** The result of the work, or a rejection when the signal aborts; the work itself continues. */
export function unlessAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason as Error)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
    const settled = work.finally(() => signal.removeEventListener('abort', stop))
    settled.then(resolve, reject)
  })
}
