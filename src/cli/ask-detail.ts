/** What an ask is about, as lines for a terminal: nothing in them can control it. */
import type { AskDetail, FileDiff } from '../core/index.ts'
import { diffLines } from '../wire/diff-lines.ts'
import { linesOf, printable, printableLine, type Paint } from './output.ts'

export function detailLines(detail: AskDetail, paint: Paint): readonly string[] {
  const { tool, kind, command, cwd, url, paths, diff, plan, reason, input } = detail
  const { unsandboxed, truncated } = detail
  const name = tool === undefined ? kind : kind === undefined ? tool : `${tool} (${kind})`
  const isShown = [command, url, diff, plan].some((field) => field !== undefined)
  return [
    ...field('tool', name),
    ...field('command', command),
    ...field('in', cwd),
    ...field('url', url),
    ...(unsandboxed === true ? [`${'sandbox'.padEnd(8)} none: it runs outside`] : []),
    ...field('reason', reason),
    ...(diff === undefined ? field('files', paths?.join('\n')) : []),
    ...field('plan', plan),
    ...(diff ?? []).flatMap((one) => shownDiff(one, paint)),
    ...(isShown || input === undefined ? [] : field('input', JSON.stringify(input, null, 2))),
    ...(truncated === true ? ['(shortened: the whole is too large to be asked about)'] : []),
  ]
}

/** A text of one line behind its name, one of more lines below it. */
function field(name: string, text: string | undefined): readonly string[] {
  if (text === undefined || text === '') return []
  const lines = linesOf(text)
  if (lines.length === 1) return [`${name.padEnd(8)} ${lines[0]}`]
  return [name, ...lines.map((line) => `  ${line}`)]
}

function shownDiff(diff: FileDiff, paint: Paint): readonly string[] {
  const lines = diffLines(diff).map(printableLine)
  return [`diff ${printable(diff.path)}`, ...lines.map((line) => `  ${painted(line, paint)}`)]
}

function painted(line: string, paint: Paint): string {
  if (line.startsWith('+')) return paint.added(line)
  return line.startsWith('-') ? paint.removed(line) : line
}
