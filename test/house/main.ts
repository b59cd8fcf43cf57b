/** `npm run house -- --help`: how big the sources are, and how they hang together. */
import { parseArgs } from 'node:util'
import { crossingsOf } from './crossings.ts'
import { figuresOf } from './figures.ts'
import { differenceReport, houseReport, type House } from './report.ts'
import { commitName, withTree } from './tree.ts'

const HELP = `Measures the sources: lines per room, functions, import cycles, repeated nouns, the central
files, and how many files one operation goes through.

  npm run house -- [options]

  --at COMMIT     that commit instead of the working tree
  --since COMMIT  what has changed since that commit
  --all           also the operations that need Chromium and PostgreSQL
  --static        only what is read from the sources: no server is started
  --json          as JSON (with npm run -s: nothing else is printed)
  --help          this text

Another commit is built in a temporary folder, with the packages of the working tree.
`

const { values } = parseArgs({
  options: {
    at: { type: 'string' },
    since: { type: 'string' },
    all: { type: 'boolean', default: false },
    static: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) process.stdout.write(HELP)
else {
  try {
    process.stdout.write(await report())
  } catch (error) {
    console.error((error as Error).message)
    process.exitCode = 1
  }
}

async function report(): Promise<string> {
  // Before anything is measured: a name may be wrong.
  const since = values.since === undefined ? null : commitName(values.since)
  const at = values.at === undefined ? null : commitName(values.at)
  const before = since === null ? null : await houseAt(since)
  const house = await houseAt(at)
  if (values.json) {
    const found = before === null ? house : { since: before, at: house }
    return `${JSON.stringify(found, null, 2)}\n`
  }
  return before === null ? houseReport(house) : differenceReport(before, house)
}

async function houseAt(commit: string | null): Promise<House> {
  const usual = values.all ? 'all' : 'usual'
  const extent = values.static ? 'none' : usual
  return withTree(commit, { build: extent !== 'none' }, async (root) => {
    const crossings = await crossingsOf(root, extent)
    return { at: commit ?? 'the working tree', ...figuresOf(root), crossings }
  })
}
