/** Which store the scenarios run on: the embedded one that they name, unless configured otherwise. */
let freshStore: (() => string) | null = null

/** From now on every scenario gets a store of this kind, empty; null: its own again. */
export function runOn(fresh: (() => string) | null): void {
  freshStore = fresh
}

/** The store for one test, as `openHoldfast` takes it. */
export function storeUnderTest(embedded: string): string {
  return freshStore?.() ?? embedded
}

/** How many sessions are many: over a socket to a database each takes longer. */
export function manySessions(embedded: number): number {
  return freshStore === null ? embedded : embedded / 50
}
