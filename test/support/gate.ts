/** Something to wait for in a test instead of a sleep. */
export type Gate<Value = void> = {
  readonly opened: Promise<Value>
  open(value: Value): void
}

export function gate<Value = void>(): Gate<Value> {
  let open!: (value: Value) => void
  const opened = new Promise<Value>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

/** Waits, without a bound of its own, until the condition holds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve))
}
