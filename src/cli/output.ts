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

/** One line of text from others, without characters that could control the terminal. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\uFFFD')

/** The same for a text of many lines. */
export const printableLines = (text: string): string => text.replace(/[^\P{Cc}\n\t]/gu, '\uFFFD')
