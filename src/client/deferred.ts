/** A promise and how to settle it. A rejection that is not awaited is no error. */
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
  // It may fail before it is awaited; callers that await it get the error.
  promise.catch(() => undefined)
  return { promise, resolve, reject }
}
