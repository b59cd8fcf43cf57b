/** What commands print for people. */

export const say = (message: string): void => console.log(`holdfast: ${message}`)
export const note = (message: string): void => console.error(`holdfast: ${message}`)

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

export const isoTime = (at: number): string => new Date(at).toISOString()

export function printJson(items: readonly unknown[]): void {
  for (const item of items) console.log(JSON.stringify(item))
}

/**
 * One line of text from others, without characters that could control the terminal, change the
 * direction of its text, or not be seen.
 */
export const printable = (text: string): string =>
  text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '\uFFFD')

/** The same for a text of many lines. Signs that join letters or pictures stay. */
export const printableLines = (text: string): string =>
  text
    .replaceAll('\r\n', '\n')
    .replace(/(?![\n\t\u200C\u200D])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\uFFFD')

/** The lines of a text from others, each printable. */
export function linesOf(text: string): readonly string[] {
  const lines = text.replace(/\r?\n$/, '').split(/\r?\n/)
  return lines.map((line) => printable(line.replaceAll('\t', '    ')))
}

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
