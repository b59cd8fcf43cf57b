/**
 * Where a page was, kept so that it can go on there after a reload: its attachment, the token to
 * come back with, and how far it had read. A store that fails only costs the way back.
 */
import type { Resume, Seen } from '../wire/frames.ts'
import type { ClientStorage } from './platform.ts'

export type StoredAttachment = {
  readonly session: string
  readonly resume: Resume
  readonly seen: Seen
}

export class Bookmark {
  readonly #storage: ClientStorage | null
  readonly #key: string
  /** The attachment that was written last: another's place is not ours to remove. */
  #attachment: string | null = null

  constructor(storage: ClientStorage | null, name: string) {
    this.#storage = storage
    this.#key = `holdfast:${name}`
  }

  read(): StoredAttachment | null {
    try {
      const place = JSON.parse(this.#storage?.getItem(this.#key) ?? 'null') as unknown
      return isStored(place) ? place : null
    } catch {
      // Forbidden, or not ours: as if there were none.
      return null
    }
  }

  write(place: StoredAttachment): void {
    this.#attachment = place.resume.attachment
    try {
      this.#storage?.setItem(this.#key, JSON.stringify(place))
    } catch {
      // Full, or forbidden: a reload will begin anew.
    }
  }

  clear(): void {
    const kept = this.read()
    if (kept !== null && this.#attachment !== null && kept.resume.attachment !== this.#attachment) {
      return
    }
    try {
      this.#storage?.removeItem(this.#key)
    } catch {
      // It could not be written either.
    }
  }
}

function isStored(value: unknown): value is StoredAttachment {
  const { session, resume, seen } = (value ?? {}) as Partial<StoredAttachment>
  const texts = [session, resume?.attachment, resume?.token]
  const numbers = [seen?.seq, seen?.delta]
  return (
    texts.every((text) => typeof text === 'string') &&
    numbers.every((number) => typeof number === 'number')
  )
}
