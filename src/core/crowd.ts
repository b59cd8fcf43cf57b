/**
 * A crowd's attachments: each is found without reading all of them, and a step that changes many
 * copies them once.
 */
import type { Attachment } from './attachments.ts'

type Attachments = readonly Attachment[]

/** Fewer are found as quickly by looking at each. */
const CROWD = 16

/**
 * Where each was when it came. Those that leave let others move forward, never back, so one is
 * there or before. A list and those made from it share what is only a hint.
 */
const hints = new WeakMap<Attachments, Map<string, number>>()

/** Its position, or -1. */
export function positionOf(attachments: Attachments, id: string): number {
  const hint = attachments.length < CROWD ? undefined : hintsOf(attachments).get(id)
  const near = hint === undefined ? -1 : lastBefore(attachments, id, hint)
  return near >= 0 ? near : lastBefore(attachments, id, attachments.length - 1)
}

function lastBefore(attachments: Attachments, id: string, from: number): number {
  let index = from
  while (index >= 0 && attachments[index]?.id !== id) index -= 1
  return index
}

function hintsOf(attachments: Attachments): Map<string, number> {
  const known = hints.get(attachments)
  if (known !== undefined) return known
  const made = new Map(attachments.map(({ id }, index) => [id, index]))
  hints.set(attachments, made)
  return made
}

/** Attachments that were copied for a step, and that nobody else has seen. */
export class Crowd {
  #own: Attachment[] | null = null

  /** With this one in that place; one more if the place is behind the last. */
  put(attachments: Attachments, index: number, attachment: Attachment): Attachments {
    const isMore = index === attachments.length
    const own = this.#owned(attachments)
    own[index] = attachment
    if (isMore) hints.get(own)?.set(attachment.id, index)
    return own
  }

  without(attachments: Attachments, index: number): Attachments {
    const own = this.#owned(attachments)
    const [gone] = own.splice(index, 1)
    if (gone !== undefined) hints.get(own)?.delete(gone.id)
    return own
  }

  #owned(attachments: Attachments): Attachment[] {
    if (this.#own === attachments) return this.#own
    const own = [...attachments]
    const known = hints.get(attachments)
    if (known !== undefined) hints.set(own, known)
    this.#own = own
    return own
  }
}
