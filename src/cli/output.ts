/** What commands print for people. */

export const say = (message: string): void => console.log(`holdfast: ${message}`)
export const note = (message: string): void => console.error(`holdfast: ${message}`)

/** The first line has the titles. */
export function printTable(lines: readonly (readonly string[])[]): void {
  const widths = lines[0]!.map((_, column) =>
    Math.max(...lines.map((line) => Array.from(line[column]!).length)),
  )
  for (const line of lines) {
    const cells = line.map((cell, column) => cell.padEnd(widths[column]!))
    console.log(cells.join('  ').trimEnd())
  }
}

export function printJson(items: readonly unknown[]): void {
  for (const item of items) console.log(JSON.stringify(item))
}

/** One line of text from others, without characters that could control the terminal. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '\uFFFD')
}

/** The same for a text of many lines. */
export function printableLines(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, '\uFFFD')
}
