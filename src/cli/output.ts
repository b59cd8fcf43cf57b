/** What commands print for people. */
import { textLines } from '../wire/diff-lines.ts'
import { printable, printableJson, printableLines } from '../wire/printable.ts'

export { printable, printableJson, printableLines }

export const say = (message: string): void => console.log(`holdfast: ${printableLines(message)}`)
export const note = (message: string): void => console.error(`holdfast: ${printableLines(message)}`)

/** The columns of a table by their titles: each gives the cell of a row. Null is shown as `-`. */
type Columns<Row> = Readonly<Record<string, (row: Row) => string | number | null>>

export function printTable<Row>(rows: readonly Row[], columns: Columns<Row>): void {
  const cellsOf = (row: Row): readonly string[] =>
    Object.values(columns).map((cell) => printable(String(cell(row) ?? '-')))
  const lines = [Object.keys(columns), ...rows.map(cellsOf)]
  const widths = lines[0]!.map((_, column) =>
    Math.max(...lines.map((line) => Array.from(line[column]!).length)),
  )
  for (const line of lines) {
    const cells = line.map((cell, column) => cell.padEnd(widths[column]!))
    console.log(cells.join('  ').trimEnd())
  }
}

/** "1 turn", "2 turns". */
export const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? '' : 's'}`

export const isoTime = (at: number): string => new Date(at).toISOString()

export function printJson(items: readonly unknown[]): void {
  for (const item of items) console.log(printableJson(JSON.stringify(item)))
}

/** One line, with its tabs as spaces. */
export const printableLine = (line: string): string => printable(line.replaceAll('\t', '    '))

/** The lines of a text from others, each printable. */
export const linesOf = (text: string): readonly string[] => textLines(text).map(printableLine)

/** Colours of a diff. */
export type Paint = { readonly [Name in 'added' | 'removed']: (line: string) => string }

export const PLAIN: Paint = { added: (line) => line, removed: (line) => line }

const COLOURED: Paint = {
  added: (line) => `\u001B[32m${line}\u001B[0m`,
  removed: (line) => `\u001B[31m${line}\u001B[0m`,
}

/** Only for a terminal, and unless the environment says otherwise (NO_COLOR). */
export function paintFor(output: object): Paint {
  const isTerminal = 'isTTY' in output && output.isTTY === true
  return isTerminal && !process.env['NO_COLOR'] ? COLOURED : PLAIN
}

/** A duration in the two largest units: `2 min 5 s`. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1_000))
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  return minutes < 60
    ? `${minutes} min ${seconds % 60} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** One word for a POSIX shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`
}
