/**
 * What a run has measured: tables, and figures that are judged by a bound. Printed at the end, and
 * written to a file with what somebody needs to compare it: the machine, the versions, the rounds.
 */
import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { cpus, release, totalmem } from 'node:os'
import { median } from './measure.ts'

/** Null: a figure that is only told. */
export type Bound = { readonly least: number } | { readonly most: number } | null

type Judged = {
  readonly what: string
  readonly values: readonly number[]
  readonly bound: Bound
}

type Table = {
  readonly title: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

export class Results {
  readonly #tables: Table[] = []
  readonly #judged: Judged[] = []

  /** The values of all rounds: their median counts. */
  judge(what: string, values: number | readonly number[], bound: Bound): void {
    this.#judged.push({ what, values: typeof values === 'number' ? [values] : values, bound })
  }

  /** The first column names what a row is about. */
  table(title: string, columns: readonly string[], rows: Table['rows']): void {
    this.#tables.push({ title, columns, rows })
    console.log(`\n${title}\n\n${markdown({ title, columns, rows })}`)
  }

  print(): void {
    if (this.#judged.length > 0) console.log(`\n${markdown(this.#verdicts())}`)
  }

  async write(file: string, settings: string): Promise<void> {
    const parts = [
      '# Benchmark results',
      `Made by \`npm run bench${settings}\`. Ratios compare within this run; absolute figures are this machine's.`,
      machine(),
      ...this.#tables.map((table) => `## ${table.title}\n\n${markdown(table)}`),
      `## Ratios and bounds\n\n${markdown(this.#verdicts())}`,
    ]
    await writeFile(file, `${parts.join('\n\n')}\n`)
    console.log(`\nwritten to ${file}`)
  }

  #verdicts(): Table {
    const rows = this.#judged.map(({ what, values, bound }) => {
      const value = median(values)
      return [what, figure(value), spread(values), described(bound), verdict(value, bound)]
    })
    return { title: '', columns: ['', 'median', 'spread', 'to reach', ''], rows }
  }
}

function described(bound: Bound): string {
  if (bound === null) return ''
  return 'least' in bound ? `≥ ${bound.least}` : `≤ ${bound.most}`
}

function verdict(value: number, bound: Bound): string {
  if (bound === null) return ''
  const isReached = 'least' in bound ? value >= bound.least : value <= bound.most
  return isReached ? 'reached' : 'MISSED'
}

const figure = (value: number): string => value.toFixed(Math.abs(value) >= 100 ? 0 : 2)

export function spread(values: readonly number[]): string {
  if (values.length < 2) return ''
  return `${figure(Math.min(...values))} to ${figure(Math.max(...values))}`
}

function markdown({ columns, rows }: Table): string {
  const widths = columns.map((name, column) =>
    Math.max(3, ...[name, ...rows.map((row) => row[column] ?? '')].map((cell) => cell.length)),
  )
  const line = (cells: readonly string[]): string =>
    `| ${widths.map((width, column) => (cells[column] ?? '').padEnd(width)).join(' | ')} |`
  const rule = `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`
  return [line(columns), rule, ...rows.map(line)].join('\n')
}

function machine(): string {
  const [cpu] = cpus()
  const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`
  const lines = [
    `- ${cpus().length} × ${cpu?.model ?? 'unknown'}, ${memory}, ${process.platform} ${release()}`,
    `- Node ${process.version}, commit ${commit()}, ${new Date().toISOString().slice(0, 10)}`,
  ]
  return lines.join('\n')
}

function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync('git', args, { encoding: 'utf8' }).trim()
    return `${git('rev-parse', '--short', 'HEAD')}${git('status', '--porcelain') === '' ? '' : ' and changes'}`
  } catch {
    return 'unknown'
  }
}
