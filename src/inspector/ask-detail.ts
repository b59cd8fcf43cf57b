/** What an ask is about, as elements: the command, the diff, the URL, the files, the arguments. */
import type { Ask } from '../client/index.ts'
import { diffLines } from '../wire/diff-lines.ts'
import { printableLines } from '../wire/printable.ts'
import { element } from './element.ts'

type Detail = NonNullable<Ask['detail']>

export function detailView(detail: Detail): HTMLElement {
  const { tool, kind, command, cwd, url, paths, diff, plan, reason, input, truncated } = detail
  const name = [tool, kind].filter((word) => word !== undefined).join(', ')
  const isShown = [command, url, diff, plan].some((part) => part !== undefined)
  return element(
    'div.detail',
    line('Tool', name),
    block('Command', command),
    line('In', cwd),
    line('URL', url),
    line('Reason', reason),
    diff === undefined ? block('Files', paths?.join('\n')) : null,
    block('Plan', plan),
    ...(diff ?? []).map(diffView),
    isShown || input === undefined ? null : block('Arguments', JSON.stringify(input, null, 2)),
    truncated === true ? element('p.muted', 'Shortened: the whole is too large.') : null,
  )
}

/**
 * Characters that would hide or reorder a part of what is approved are shown as such. An agent in
 * JavaScript may have given what is no text.
 */
export const shownText = (text: unknown): string => printableLines(String(text))

function line(name: string, text: string | undefined): HTMLElement | null {
  if (text === undefined || text === '') return null
  return element('p.fact', element('span.muted', name), ' ', shownText(text))
}

function block(name: string, text: string | undefined): HTMLElement | null {
  if (text === undefined || text === '') return null
  return element('pre', { 'aria-label': name, tabindex: 0 }, shownText(text))
}

function diffView(diff: NonNullable<Detail['diff']>[number]): HTMLElement {
  const rows = diffLines(diff).map((text) => {
    const change = text.startsWith('+') ? 'added' : text.startsWith('-') ? 'removed' : null
    return element('span', { 'data-change': change }, `${shownText(text)}\n`)
  })
  const name = `Change of ${shownText(diff.path)}`
  return element(
    'div.diff',
    element('p.fact', element('span.muted', 'Change of'), ' ', shownText(diff.path)),
    element('pre', { 'aria-label': name, tabindex: 0 }, ...rows),
  )
}
