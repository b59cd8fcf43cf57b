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
    const place = attempt(() => JSON.parse(this.#storage?.getItem(this.#key) ?? 'null') as unknown)
    return isStored(place) ? place : null
  }

  write(place: StoredAttachment): void {
    this.#attachment = place.resume.attachment
    attempt(() => this.#storage?.setItem(this.#key, JSON.stringify(place)))
  }

  clear(): void {
    const kept = this.read()?.resume.attachment ?? this.#attachment
    if (this.#attachment !== null && kept !== this.#attachment) return
    attempt(() => this.#storage?.removeItem(this.#key))
  }
}

/** Null if the store is full or forbidden, or has what is not ours: as if there were nothing. */
function attempt<Value>(use: () => Value): Value | null {
  try {
    return use()
  } catch {
    return null
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
