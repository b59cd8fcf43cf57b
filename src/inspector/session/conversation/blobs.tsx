/** The images and files of a message. They are requested with the token, as no `img` could be. */
import { useEffect, useState } from 'preact/hooks'
import type { Part } from '../../../client/index.ts'
import { sessionPath } from '../../../wire/views.ts'
import { api } from '../../shared/server.ts'
import { Button, Tag } from '../../shared/parts.tsx'
import { saveBlob } from '../../shared/save.ts'
import { shownName } from '../../shared/shown-text.ts'
import type { SessionAccess } from '../connection.ts'

type BlobPart = Exclude<Part, { type: 'text' }>

/** What a browser shows without running anything in it. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp']

/** Each image, and a button for each file. */
export function Blobs({
  parts,
  access,
}: {
  readonly parts: readonly Part[]
  readonly access: SessionAccess
}) {
  // A log of before may have something else there.
  const blobs = parts.filter(
    (part): part is BlobPart => part?.type !== 'text' && part?.digest !== undefined,
  )
  if (blobs.length === 0) return null
  return (
    <div class="blobs">
      {blobs.map((part, index) => (
        <BlobView key={index} part={part} access={access} />
      ))}
    </div>
  )
}

function BlobView({ part, access }: { readonly part: BlobPart; readonly access: SessionAccess }) {
  const { type, name = type, digest, bytes } = part
  const label = `${shownName(name)} (${Math.ceil(bytes / 1024)} kB)`
  const [src, setSrc] = useState<string | null>(null)
  const load = async (): Promise<Blob> => {
    const path = `${sessionPath(access.id)}/blobs/${encodeURIComponent(digest)}`
    return (await api.call(path)).blob()
  }
  useEffect(() => {
    if (type !== 'image' || access.link !== null) return
    let address = ''
    load().then(
      (blob) => {
        if (!IMAGES.includes(blob.type)) return
        address = URL.createObjectURL(blob)
        setSrc(address)
      },
      // It stays a button, which says why it cannot be saved either.
      (_error: unknown) => setSrc(null),
    )
    return () => URL.revokeObjectURL(address)
  }, [digest])
  // A link admits to the socket only.
  if (access.link !== null) return <Tag>{label}</Tag>
  if (src !== null) return <img class="part" src={src} alt={label} />
  return <SaveButton label={label} save={() => load().then((blob) => saveBlob(blob, name))} />
}

function SaveButton({
  label,
  save,
}: {
  readonly label: string
  readonly save: () => Promise<void>
}) {
  const [problem, setProblem] = useState('')
  const run = (): void => {
    save().catch((error: Error) => setProblem(error.message))
  }
  return (
    <Button kind="plain" onClick={run} class="file" title={problem === '' ? 'Save' : problem}>
      {label}
    </Button>
  )
}
