/** What an ask is about, as lines for a terminal: nothing in them can control it. */
import type { AskDetail, FileDiff } from '../core/index.ts'
import { linesOf, printable, type Paint } from './output.ts'

/** Unchanged lines that are shown around a change. */
const CONTEXT_LINES = 3

export function detailLines(detail: AskDetail, paint: Paint): readonly string[] {
  const { tool, kind, command, cwd, url, paths, diff, plan, reason, input, truncated } = detail
  const name = tool === undefined ? kind : kind === undefined ? tool : `${tool} (${kind})`
  const isShown = [command, url, diff, plan].some((field) => field !== undefined)
  return [
    ...field('tool', name),
    ...field('command', command),
    ...field('in', cwd),
    ...field('url', url),
    ...field('reason', reason),
    ...(diff === undefined ? field('files', paths?.join('\n')) : []),
    ...field('plan', plan),
    ...(diff ?? []).flatMap((one) => diffLines(one, paint)),
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

function diffLines(diff: FileDiff, paint: Paint): readonly string[] {
  const lines = 'unified' in diff ? linesOf(diff.unified) : changedLines(diff)
  return [`diff ${printable(diff.path)}`, ...lines.map((line) => `  ${painted(line, paint)}`)]
}

function painted(line: string, paint: Paint): string {
  if (line.startsWith('+')) return paint.added(line)
  return line.startsWith('-') ? paint.removed(line) : line
}

/** All lines from the first that differs to the last, and a few around them. */
function changedLines({
  before,
  after,
}: {
  readonly before: string | null
  readonly after: string
}): readonly string[] {
  const [old, now] = [before === null ? [] : linesOf(before), linesOf(after)]
  const shorter = Math.min(old.length, now.length)
  let first = 0
  while (first < shorter && old[first] === now[first]) first += 1
  let last = 0
  while (last < shorter - first && old.at(-1 - last) === now.at(-1 - last)) last += 1
  const [oldEnd, nowEnd] = [old.length - last, now.length - last]
  return [
    ...(before === null ? [] : [`@@ line ${first + 1} @@`]),
    ...now.slice(Math.max(0, first - CONTEXT_LINES), first).map((line) => ` ${line}`),
    ...old.slice(first, oldEnd).map((line) => `-${line}`),
    ...now.slice(first, nowEnd).map((line) => `+${line}`),
    ...now.slice(nowEnd, nowEnd + CONTEXT_LINES).map((line) => ` ${line}`),
  ]
}
