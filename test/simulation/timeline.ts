/**
 * Virtual time: what is to happen, in order. Nothing in a world waits for real time; between two
 * happenings every promise that can go on does so.
 */
type Task = {
  readonly at: number
  readonly order: number
  run: (() => void) | null
}

const STEPS_PER_ROUND = 50

export class Timeline {
  now = 0
  readonly #heap: Task[] = []
  #order = 0

  /** Runs once after `ms` of virtual time; the returned function cancels it. */
  after(ms: number, run: () => void): () => void {
    this.#order += 1
    const task: Task = { at: this.now + Math.max(0, ms), order: this.#order, run }
    this.#push(task)
    return () => (task.run = null)
  }

  /** A pause of the world's own people, who never crash. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, resolve))
  }

  /** Lets things happen until the time comes, `done` says so, or nothing is left. */
  advance(untilMs: number, done: () => boolean = () => false): Promise<void> {
    return new Promise((resolve) => {
      let isOver = false
      const step = (): void => {
        if (isOver) return
        const task = done() ? null : this.#pop(untilMs)
        if (task !== null) {
          this.now = task.at
          return task.run?.()
        }
        isOver = true
        if (Number.isFinite(untilMs) && !done()) this.now = Math.max(this.now, untilMs)
        resolve()
      }
      // Between two immediates every promise that can go on does; many at once spare the event loop.
      const round = (): void => {
        if (isOver) return
        for (let count = 0; count < STEPS_PER_ROUND; count += 1) setImmediate(step)
        setImmediate(round)
      }
      round()
    })
  }

  #push(task: Task): void {
    const heap = this.#heap
    let index = heap.length
    heap.push(task)
    while (index > 0) {
      const parent = (index - 1) >> 1
      if (!isBefore(task, heap[parent] as Task)) break
      heap[index] = heap[parent] as Task
      index = parent
    }
    heap[index] = task
  }

  /** The next task that was not cancelled, if it is due by then. */
  #pop(untilMs: number): Task | null {
    for (;;) {
      const [first] = this.#heap
      if (first === undefined || (first.run !== null && first.at > untilMs)) return null
      this.#removeFirst()
      if (first.run !== null) return first
    }
  }

  #removeFirst(): void {
    const heap = this.#heap
    const last = heap.pop() as Task
    if (heap.length === 0) return
    let index = 0
    for (;;) {
      let child = index * 2 + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Task, heap[child] as Task)) {
        child += 1
      }
      if (!isBefore(heap[child] as Task, last)) break
      heap[index] = heap[child] as Task
      index = child
    }
    heap[index] = last
  }
}

function isBefore(first: Task, second: Task): boolean {
  return first.at < second.at || (first.at === second.at && first.order < second.order)
}
