/**
 * What went wrong in a world, with enough of its history to begin looking, and how to see it all.
 */
import type { Violation } from './checker.ts'
import { readable, type History } from './history.ts'

export type WorldKind = 'core' | 'wire' | 'held'

const LINES_MAX = 60

export function report(
  history: History,
  violations: readonly Violation[],
  kind: WorldKind,
): string {
  const { seed } = history
  return [
    `seed ${seed}: ${violations.length} violations`,
    ...violations.slice(0, 10).map(({ invariant, message }) => `  ${invariant} ${message}`),
    ...excerpt(history, violations[0]?.message ?? '').map((line) => `    ${line}`),
    `see it all: npm run simulate -- --only ${kind} --seed ${seed} --trace`,
  ].join('\n')
}

/** The last lines that tell of the session in question. */
function excerpt(history: History, message: string): readonly string[] {
  const session = [...history.logs.keys()].find((id) => message.includes(id))
  const lines = [...readable(history)]
  const telling = lines.filter(
    (line) => session === undefined || line.includes(session) || / (node|world)\./.test(line),
  )
  return telling.slice(-LINES_MAX)
}
