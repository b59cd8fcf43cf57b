/** A picture of a page, taken again and again while it can be seen. */
import { useEffect, useState } from 'preact/hooks'
import { usePolled } from '../shared/polled.ts'
import { api } from '../shared/server.ts'
import { shownName } from '../shared/shown-text.ts'
import type { BrowserPage } from './browser-list.ts'

type PictureProps = {
  readonly session: string
  readonly page: BrowserPage
  readonly everyMs: number
}

export function Picture({ session, page, everyMs }: PictureProps) {
  const query = new URLSearchParams({ page: page.id }).toString()
  const path = `/v1/browsers/${encodeURIComponent(session)}/screenshot?${query}`
  const { value, problem } = usePolled((signal) => photographed(path, signal), everyMs, path)
  const address = useObjectUrl(value)
  if (address === null) return <div class="picture none">{problem ?? ''}</div>
  return (
    <div class="picture">
      <img src={address} alt={`What the page ${shownName(page.title || page.url)} shows`} />
      {problem === null ? null : <p class="picture-problem">{problem}</p>}
    </div>
  )
}

/** The server takes four pictures at a time, for all of its clients. */
const AT_ONCE = 2
let underWay = 0
const waiting: (() => void)[] = []

async function photographed(path: string, signal: AbortSignal): Promise<Blob> {
  if (underWay >= AT_ONCE) await new Promise<void>((resolve) => waiting.push(resolve))
  else underWay += 1
  try {
    return await (await api.call(path, { signal })).blob()
  } finally {
    const next = waiting.shift()
    if (next === undefined) underWay -= 1
    else next()
  }
}

function useObjectUrl(blob: Blob | null): string | null {
  const [url, setUrl] = useState<string | null>(null)
  useEffect(() => {
    if (blob === null) return setUrl(null)
    const made = URL.createObjectURL(blob)
    setUrl(made)
    return () => URL.revokeObjectURL(made)
  }, [blob])
  return url
}
