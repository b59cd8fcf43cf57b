/** The images and files of a message. They are requested with the token, as no `img` could be. */
import type { Part } from '../client/index.ts'
import { sessionPath } from '../wire/views.ts'
import type { Api } from './api.ts'
import { button, element, tag } from './element.ts'

/** Null: this page came in by a link, which is good for the socket only. */
export type LoadBlob = ((digest: string) => Promise<Blob>) | null

/** What a browser shows without running anything in it. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']

export function blobLoader(api: Api, session: string, link: string | null): LoadBlob {
  if (link !== null) return null
  return async (digest) => {
    const path = `${sessionPath(session)}/blobs/${encodeURIComponent(digest)}`
    return (await api.call(path)).blob()
  }
}

/** Each image, and a link for each file. */
export function partsView(parts: readonly Part[], load: LoadBlob): readonly HTMLElement[] {
  return parts.flatMap((part) => {
    // A log of before may have something else there.
    if (part?.type === 'text' || part?.digest === undefined) return []
    const { type, name = type, digest, bytes } = part
    const label = `${name} (${Math.ceil(bytes / 1024)} kB)`
    if (load === null) return [tag(label)]
    const link = button(label, () => void load(digest).then((blob) => save(blob, name)), {
      class: 'plain',
    })
    if (type === 'image')
      void load(digest).then(
        (blob) => showImage(link, blob, label),
        () => null,
      )
    return [link]
  })
}

/** In the place of its link, if it is an image. */
function showImage(link: HTMLElement, blob: Blob, label: string): void {
  if (!IMAGES.includes(blob.type)) return
  const src = URL.createObjectURL(blob)
  const done = (): void => URL.revokeObjectURL(src)
  link.replaceWith(element('img.part', { src, alt: label, onload: done, onerror: done }))
}

function save(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob)
  element('a', { href, download: name }).click()
  URL.revokeObjectURL(href)
}
