/** The beginning of a very long text, and a button for all of it. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Button } from './parts.tsx'

export function useClipped(text: string, charsMax: number): readonly [string, ComponentChildren] {
  const [isWhole, setWhole] = useState(false)
  if (isWhole || text.length <= charsMax) return [text, null]
  const button = (
    <Button kind="plain" class="show-all" onClick={() => setWhole(true)}>
      Show all {text.length.toLocaleString()} characters
    </Button>
  )
  return [text.slice(0, charsMax), button]
}

/** For one line of a list. */
export const beginningOf = (text: string, charsMax = 300): string =>
  text.length > charsMax ? `${text.slice(0, charsMax)}…` : text
