/**
 * The browser's windows that the clients of a session were told of, each with a page in it: only
 * these may they move, for the numbers of others' could be guessed.
 */
export class Windows {
  readonly #pages = new Map<number, string>()

  has(window: number): boolean {
    return this.#pages.has(window)
  }

  /** Windows whose page is gone are forgotten: who still needs one asks for it again. */
  learn(window: number, page: string, isThere: (page: string) => boolean): void {
    for (const [known, its] of this.#pages) if (!isThere(its)) this.#pages.delete(known)
    this.#pages.set(window, page)
  }
}
