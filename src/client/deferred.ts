/** A promise and how to settle it. Nobody has to wait for it: a rejection unheard is no error. */
export type Deferred<Value> = {
  readonly promise: Promise<Value>
  readonly resolve: (value: Value) => void
  readonly reject: (error: Error) => void
}

export function deferred<Value>(): Deferred<Value> {
  let resolve!: (value: Value) => void
  let reject!: (error: Error) => void
  const promise = new Promise<Value>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  // It may fail before anybody waits for it; those that do are told.
  promise.catch(() => undefined)
  return { promise, resolve, reject }
}
