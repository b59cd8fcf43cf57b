/** Code with its colours, and a button that copies it. */
import { useMemo } from 'preact/hooks'
import { useClipped } from './clipped.tsx'
import { highlight } from './highlight.ts'
import { CopyButton } from './parts.tsx'
import { shownName, shownText } from './shown-text.ts'

/** A longer text is shown on request. */
const CODE_CHARS_MAX = 50_000

type CodeBlockProps = {
  readonly text: string
  readonly language?: string
  /** Without colours, as long as the text grows. */
  readonly isPlain?: boolean
  /** What screen readers call it. */
  readonly label?: string
}

export function CodeBlock({ text, language = '', isPlain = false, label }: CodeBlockProps) {
  const [beginning, more] = useClipped(text, CODE_CHARS_MAX)
  const shown = shownText(beginning)
  const pieces = useMemo(
    () => highlight(shown, isPlain ? '' : language),
    [shown, language, isPlain],
  )
  return (
    <div class="code-block">
      <div class="code-head">
        <span class="code-language">{shownName(language)}</span>
        <CopyButton text={text} label="Copy the code">
          Copy
        </CopyButton>
      </div>
      <pre tabIndex={0} aria-label={label ?? 'Code'}>
        {pieces.map(({ kind, text: piece }, index) =>
          kind === null ? (
            piece
          ) : (
            <span key={index} data-piece={kind}>
              {piece}
            </span>
          ),
        )}
      </pre>
      {more}
    </div>
  )
}

/** A value of an agent: text as text, anything else as JSON. */
export function Value({ value, label }: { readonly value: unknown; readonly label: string }) {
  const text = valueText(value)
  const isJson = typeof value !== 'string'
  return <CodeBlock text={text} language={isJson ? 'json' : ''} label={label} />
}

export function valueText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? String(value))
}
