/**
 * Whether the paths of the files that are open still lead to them. A file that was deleted, moved
 * or replaced goes on to take writes, which are lost.
 */
import { statSync } from 'node:fs'
import { HoldfastError } from '../../core/errors.ts'

type FileIdentity = { readonly path: string; readonly dev: number; readonly ino: number }

export class OpenPaths {
  readonly #identities: readonly FileIdentity[]

  constructor(paths: readonly string[]) {
    this.#identities = paths.map((path) => {
      const { dev, ino } = statSync(path)
      return { path, dev, ino }
    })
  }

  /** Throws `store_failed` if one of the paths leads elsewhere or nowhere. */
  check(): void {
    for (const { path, dev, ino } of this.#identities) {
      const now = statSync(path, { throwIfNoEntry: false })
      if (now?.ino === ino && now.dev === dev) continue
      const what = now === undefined ? 'deleted or moved' : 'replaced'
      throw new HoldfastError(
        'store_failed',
        `a file of the store was ${what} while it was in use (${suffixOf(path)}): ` +
          'nothing more is written; put it back, then start Holdfast again',
      )
    }
  }
}

/** Clients see it too: the kind of file, not its path. */
function suffixOf(path: string): string {
  return /(?:-wal|\.lock|\.open)$/.exec(path)?.[0] ?? 'the database'
}
