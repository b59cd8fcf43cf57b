/** The change of a file as the lines of a diff. */
import type { FileDiff } from '../core/index.ts'

/** Unchanged lines that are shown around a change. */
const CONTEXT_LINES = 3

/** Each begins with `+`, `-`, a space, or `@@`. */
export function diffLines(diff: FileDiff): readonly string[] {
  return 'unified' in diff ? textLines(diff.unified) : changedLines(diff.before, diff.after)
}

export function textLines(text: string): readonly string[] {
  return text.replace(/\r?\n$/, '').split(/\r?\n/)
}

/** All lines from the first that differs to the last, and a few around them. */
function changedLines(before: string | null, after: string): readonly string[] {
  const [old, now] = [before === null ? [] : textLines(before), textLines(after)]
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
