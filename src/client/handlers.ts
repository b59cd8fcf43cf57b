/**
 * Who wants to hear what. A handler that was removed is never called again, not even in this round.
 */
export class Handlers<Events> {
  readonly #handlers = new Map<keyof Events, Set<(value: never) => void>>()

  /** The returned function removes it. */
  on<Name extends keyof Events>(name: Name, handler: (value: Events[Name]) => void): () => void {
    const set = this.#handlers.get(name) ?? new Set()
    this.#handlers.set(name, set)
    // One function may be registered twice, and removed once.
    const own = (value: Events[Name]): void => handler(value)
    set.add(own)
    return () => void set.delete(own)
  }

  emit<Name extends keyof Events>(name: Name, value: Events[Name]): void {
    const set = this.#handlers.get(name)
    for (const handler of [...(set ?? [])]) {
      if (set?.has(handler) === true) call(handler as (value: Events[Name]) => void, value)
    }
  }

  clear(): void {
    for (const set of this.#handlers.values()) set.clear()
  }
}

/** What a handler throws is the page's mistake: it is reported there and stops nothing here. */
function call<Value>(handler: (value: Value) => void, value: Value): void {
  try {
    handler(value)
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}
