/** The change of a file, line by line. */
import type { Ask } from '../../client/index.ts'
import { diffLines } from '../../wire/diff-lines.ts'
import { shownName, shownText } from './shown-text.ts'

export type FileChange = NonNullable<NonNullable<Ask['detail']>['diff']>[number]

export function Diff({ change }: { readonly change: FileChange }) {
  const lines = diffLines(change).map((line) => shownText(line))
  const path = shownName(change.path)
  const [added, removed] = ['+', '-'].map(
    (sign) => lines.filter((line) => line.startsWith(sign)).length,
  )
  return (
    <div class="diff">
      <p class="fact diff-head">
        <span class="muted">Change of</span> <span class="mono">{path}</span>
        <span class="diff-count">
          <span data-change="more">+{added}</span> <span data-change="less">−{removed}</span>
        </span>
      </p>
      <pre aria-label={`Change of ${path}`} tabIndex={0}>
        {lines.map((line, index) => (
          <span key={index} data-change={changeOf(line)}>{`${line}\n`}</span>
        ))}
      </pre>
    </div>
  )
}

function changeOf(line: string): string | undefined {
  if (line.startsWith('+')) return 'added'
  return line.startsWith('-') ? 'removed' : undefined
}
