/** Handlers of events. One that was removed is never called again, not even in this round. */
export class Handlers<Events> {
  readonly #handlers = new Set<{
    readonly name: keyof Events
    readonly call: (value: never) => void
  }>()

  /** The returned function removes it. */
  on<Name extends keyof Events>(name: Name, call: (value: Events[Name]) => void): () => void {
    // One function may be registered twice, and removed once.
    const handler = { name, call }
    this.#handlers.add(handler)
    return () => void this.#handlers.delete(handler)
  }

  emit<Name extends keyof Events>(name: Name, value: Events[Name]): void {
    for (const handler of [...this.#handlers]) {
      if (handler.name !== name || !this.#handlers.has(handler)) continue
      try {
        handler.call(value as never)
      } catch (error) {
        // The page's mistake: it is reported there and stops nothing here.
        queueMicrotask(() => {
          throw error
        })
      }
    }
  }

  clear(): void {
    this.#handlers.clear()
  }
}
